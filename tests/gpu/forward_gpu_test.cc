// SPDX-License-Identifier: Apache-2.0
// Every model family on a GPU gives the outputs of diffusers and transformers (tests/golden), or,
// without a golden file, the outputs of the CPU.
#include <ATen/core/grad_mode.h>

#include "core/model/autoencoder_kl.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/text_encoder.h"
#include "io/diffusers_directory.h"
#include "io/graph_files.h"
#include "io/prompts/text_encoders.h"
#include "tests/golden/model_golden.h"
#include "tests/gpu/gpu_test.h"

namespace oxbow::model {
namespace {

class GoldenGpuTest : public GpuTest, public ::testing::WithParamInterface<std::string> {};

using Sd3GpuTest = GoldenGpuTest;

TEST_P(Sd3GpuTest, VelocitiesAndGradientsAreThoseOfDiffusers) {
  const Golden golden(GetParam());
  const Sd3Params params = *ParseSd3Config(golden.config);
  NamedTensors trained = golden.weights;
  trained.erase(kSd3PositionTable);
  const auto gradients_on = [&](at::Device device) {
    ParameterSet set(trained, /*trainable=*/true, device);
    NamedTensors all = set.tensors();
    all[kSd3PositionTable] = golden.weights.at(kSd3PositionTable).to(device);
    const auto model = *MakeSd3Transformer(params, all);
    const at::Tensor v = model->Velocity(
        golden.in.at("x"), golden.in.at("sigma"),
        {{kPromptTokens, golden.in.at("tokens")}, {kPooledPrompt, golden.in.at("pooled")}});
    ExpectNear("v", v, golden.out.at("v"), kExactTolerance);
    (v * golden.in.at("direction")).sum().backward();
    return set.flat_grad().cpu();
  };
  ExpectNear("gradient", gradients_on(gpu_), gradients_on(at::kCPU), kExactTolerance);
}

INSTANTIATE_TEST_SUITE_P(Configs, Sd3GpuTest, ::testing::ValuesIn(GoldenNames("sd3")),
                         [](const auto& info) { return info.param; });

using AutoencoderGpuTest = GoldenGpuTest;

TEST_P(AutoencoderGpuTest, ImagesAndMomentsAreThoseOfDiffusers) {
  const at::NoGradGuard no_grad;
  const Golden golden(GetParam());
  const AutoencoderKlParams params = *ParseAutoencoderKlConfig(golden.config);
  const auto model = *MakeAutoencoderKl(params, On(gpu_, golden.weights), AutoencoderPart::kWhole);
  ExpectNear("images", model->Images(golden.in.at("z").to(gpu_)), golden.out.at("images"),
             kExactTolerance);
  const LatentDistribution latents = model->Encode(golden.in.at("images").to(gpu_));
  ExpectNear("mean", latents.mean / params.scaling_factor + params.shift_factor,
             golden.out.at("mean"), kExactTolerance);
}

// Inputs and outputs are on the CPU, as in workers. A value at a rounding edge may round
// differently.
TEST_P(AutoencoderGpuTest, DecodesFromTheCpuToTheCpu) {
  const at::NoGradGuard no_grad;
  const Golden golden(GetParam());
  const AutoencoderKlParams params = *ParseAutoencoderKlConfig(golden.config);
  const auto here = *MakeAutoencoderKl(params, golden.weights, AutoencoderPart::kWhole);
  const auto there = *MakeAutoencoderKl(params, On(gpu_, golden.weights), AutoencoderPart::kWhole);
  const at::Tensor near = here->Decode(golden.in.at("z")), far = there->Decode(golden.in.at("z"));
  EXPECT_TRUE(far.is_cpu());
  EXPECT_LE((near.to(at::kInt) - far.to(at::kInt)).abs().max().item<int>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Configs, AutoencoderGpuTest, ::testing::ValuesIn(GoldenNames("vae")),
                         [](const auto& info) { return info.param; });

using TextGpuTest = GpuTest;

TEST_F(TextGpuTest, T5StatesAreThoseOfTheCpuInEveryType) {
  const auto graph =
      io::ReadGraphFile(OXBOW_SOURCE_DIR "/models/digits_flux/text_encoder_2/graph.json.gz");
  const exported::Graph t5 = *exported::ParseGraph(*graph);
  at::manual_seed(7);
  NamedTensors weights;
  for (const auto& [name, shape] : exported::ShapesOf(t5)) {
    weights[name] = shape.size() == 1 ? at::ones(shape) : at::randn(shape) * 0.2;
  }
  const TokenIds texts = {at::arange(22, at::kLong).remainder(8).view({2, 11}), {}};
  const auto hidden = [&](at::Device device, at::ScalarType type) {
    const auto encoder = TextEncoder::Make(t5, weights, {.device = device, .compute = type});
    return (*encoder)->Encode(texts)->at("hidden");
  };
  const at::Tensor exact = hidden(at::kCPU, at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    ExpectNear(at::toString(type), hidden(gpu_, type), exact,
               type == at::kFloat ? kExactTolerance : kShortTolerance);
  }
}

// Loaded from a model's directory, as learners and `oxbow encode` do; the result returns to the
// CPU.
TEST_F(TextGpuTest, TextEncodersOnADeviceSayWhatTheySayOnTheCpu) {
  const auto said_on = [&](at::Device device) {
    const auto components = io::OpenDiffusersDirectory(OXBOW_SOURCE_DIR "/models/digits");
    const auto encoders = io::TextEncoders::Open(*components, {.device = device});
    return *(*encoders)->Encode({"text 473", ""});
  };
  const EncodedText near = said_on(at::kCPU), far = said_on(gpu_);
  for (const auto& [name, tensor] : near) {
    EXPECT_TRUE(far.at(name).is_cpu()) << name;
    ExpectNear(name, far.at(name), tensor, kExactTolerance);
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Sd3GpuTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AutoencoderGpuTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ClipGpuTest);

}  // namespace
}  // namespace oxbow::model
