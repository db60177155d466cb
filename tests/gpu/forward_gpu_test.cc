// SPDX-License-Identifier: Apache-2.0
// Every model family on a GPU gives the outputs of diffusers and transformers (tests/golden), or,
// without a golden file, the outputs of the CPU.
#include <ATen/core/grad_mode.h>

#include "core/model/autoencoder_kl.h"
#include "core/model/clip_text.h"
#include "core/model/t5.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"
#include "tests/golden/model_golden.h"
#include "tests/gpu/gpu_test.h"

namespace oxbow::model {
namespace {

class GoldenGpuTest : public GpuTest, public ::testing::WithParamInterface<std::string> {};

using Sd3GpuTest = GoldenGpuTest;

TEST_P(Sd3GpuTest, VelocitiesAndGradientsAreThoseOfDiffusers) {
  const Golden golden(GetParam());
  NamedTensors trained = golden.weights;
  trained.erase(kPositionTable);
  const auto gradients_on = [&](at::Device device) {
    ParameterSet set(trained, /*trainable=*/true, device);
    NamedTensors all = set.tensors();
    all[kPositionTable] = golden.weights.at(kPositionTable).to(device);
    const auto model = *golden.Network()->Make(all, nullptr, {});
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

using ClipGpuTest = GoldenGpuTest;

TEST_P(ClipGpuTest, TokensAndPooledAreThoseOfTransformers) {
  const at::NoGradGuard no_grad;
  const Golden golden(GetParam());
  const ClipTextParams params = *ParseClipTextConfig(golden.config);
  const auto encoder = *MakeClipTextEncoder(params, On(gpu_, golden.weights));
  const ClipTextOutput text = encoder->Encode(golden.in.at("ids").to(gpu_));
  ExpectNear("penultimate", text.penultimate, golden.out.at("penultimate"), kExactTolerance);
  ExpectNear("pooled", text.pooled, golden.out.at("pooled"), kExactTolerance);
}

INSTANTIATE_TEST_SUITE_P(Configs, ClipGpuTest, ::testing::ValuesIn(GoldenNames("clip")),
                         [](const auto& info) { return info.param; });

using TextGpuTest = GpuTest;

TEST_F(TextGpuTest, T5StatesAreThoseOfTheCpuInEveryType) {
  const at::NoGradGuard no_grad;
  const T5Params params =
      *ParseT5Config(R"({"vocab_size": 40, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2,
                         "num_heads": 3, "feed_forward_proj": "gated-gelu", "model_type": "t5"})");
  at::manual_seed(7);
  NamedTensors weights;
  for (const auto& [name, shape] : T5Shapes(params)) {
    const bool norm = name.find("norm") != std::string::npos;
    weights[name] = norm ? at::ones(shape) : at::randn(shape) * 0.2;
  }
  const at::Tensor ids = at::arange(22, at::kLong).view({2, 11});
  const at::Tensor exact = (*MakeT5Encoder(params, weights))->Encode(ids, {});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    NamedTensors there;
    for (const auto& [name, tensor] : weights) {
      there[name] = tensor.to(gpu_, T5StorageType(name, type));
    }
    ExpectNear(at::toString(type), (*MakeT5Encoder(params, there))->Encode(ids.to(gpu_), {}), exact,
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
