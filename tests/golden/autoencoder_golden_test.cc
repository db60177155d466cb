// SPDX-License-Identifier: Apache-2.0
// Our autoencoder against diffusers': images, moments and the latents' gradient.
#include "core/model/autoencoder_kl.h"
#include "gtest/gtest.h"
#include "tests/golden/model_golden.h"

namespace oxbow::model {
namespace {

class AutoencoderGoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(AutoencoderGoldenTest, ImagesMomentsAndGradientsAreThoseOfDiffusers) {
  const Golden golden(GetParam());
  const auto params = ParseAutoencoderKlConfig(golden.config);
  ASSERT_TRUE(params.ok()) << params.status();
  const auto model = MakeAutoencoderKl(*params, golden.weights, AutoencoderPart::kWhole);
  ASSERT_TRUE(model.ok()) << model.status();

  at::Tensor z = golden.in.at("z").clone();
  z.requires_grad_(true);
  const at::Tensor images = (*model)->Images(z);
  ExpectClose(images, golden.out.at("images"));
  (images * golden.in.at("direction")).sum().backward();
  const at::Tensor& gradient = golden.gradients.at("z");
  EXPECT_LE((z.grad() - gradient).abs().max().item<double>(),
            kGradientTolerance * gradient.abs().max().item<double>());

  const LatentDistribution latents = (*model)->Encode(golden.in.at("images"));
  ExpectClose(latents.mean / params->scaling_factor + params->shift_factor, golden.out.at("mean"));
  ExpectClose((latents.std / params->scaling_factor).log() * 2, golden.out.at("logvar"));
}

INSTANTIATE_TEST_SUITE_P(Configs, AutoencoderGoldenTest, ::testing::ValuesIn(GoldenNames("vae")),
                         [](const auto& info) { return info.param; });

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AutoencoderGoldenTest);

}  // namespace
}  // namespace oxbow::model
