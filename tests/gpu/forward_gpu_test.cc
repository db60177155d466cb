// SPDX-License-Identifier: Apache-2.0
// Every model family on a GPU gives the outputs of diffusers and transformers (tests/golden), or,
// without a golden file, the outputs of the CPU.
#include <ATen/core/grad_mode.h>

#include <cstdlib>

#include "core/model/exported_graph/exported_decoder.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/text_encoder.h"
#include "io/diffusers_directory.h"
#include "io/graph_files.h"
#include "io/prompts/text_encoders.h"
#include "tests/golden/decoder_golden.h"
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

class DecoderGpuTest : public GoldenGpuTest {
 protected:
  std::unique_ptr<ImageDecoder> On(at::Device device) const {
    const auto architecture = *ReadDecoder(golden_.config, golden_.graph);
    return *architecture->Make(model::On(device, golden_.weights));
  }
  const DecoderGolden golden_{GetParam()};
};

TEST_P(DecoderGpuTest, PixelsAreThoseOfDiffusers) {
  const auto decoder = On(gpu_);
  for (int number = 0; number < golden_.cases; ++number) {
    const auto& pixels = dynamic_cast<const exported::ExportedDecoder&>(*decoder);
    ExpectNear("pixels", pixels.Pixels(golden_.Latents(number).to(gpu_)), golden_.Pixels(number),
               kExactTolerance);
  }
}

// Inputs and outputs are on the CPU, as in workers, and more pictures than are decoded at once. A
// value at a rounding edge may round differently.
TEST_P(DecoderGpuTest, DecodesFromTheCpuToTheCpu) {
  const at::Tensor two = golden_.Latents(0), latents = at::cat({two, two, two, two, two});
  const at::Tensor near = On(at::kCPU)->Decode(latents), far = On(gpu_)->Decode(latents);
  EXPECT_TRUE(far.is_cpu());
  EXPECT_LE((near.to(at::kInt) - far.to(at::kInt)).abs().max().item<int>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Configs, DecoderGpuTest, ::testing::ValuesIn(DecoderNames("kl_")),
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
  const char* const models = std::getenv("OXBOW_SMALL_MODELS");
  const std::string directory = models != nullptr ? models : OXBOW_SOURCE_DIR "/models";
  const auto said_on = [&](at::Device device) {
    const auto components = io::OpenDiffusersDirectory(directory + "/digits");
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
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ClipGpuTest);

}  // namespace
}  // namespace oxbow::model
