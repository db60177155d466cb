// Our models against diffusers' and transformers': outputs within 1e-5, gradients within 1e-4 of
// the largest of their tensor. Both are float32 with sums in different orders; nothing else may
// differ.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdlib>
#include <filesystem>

#include "core/model/clip_text.h"
#include "core/model/initial_weights.h"
#include "core/model/parameters.h"
#include "core/model/policy.h"
#include "core/model/sd3.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::model {
namespace {

constexpr double kOutputTolerance = 1e-5;
constexpr double kGradientTolerance = 1e-4;

std::filesystem::path GoldenFile(const std::string& name) {
  const char* directory = std::getenv("OXBOW_MODEL_GOLDENS");
  return std::filesystem::path(directory != nullptr ? directory
                                                    : OXBOW_SOURCE_DIR "/tests/golden/models") /
         (name + ".safetensors");
}

// The tensors of a golden file by section, and the model's config.json.
struct Golden {
  explicit Golden(const std::string& name) {
    const auto file = io::ReadSafetensors(GoldenFile(name));
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return;
    config = file->metadata.at("config");
    for (const auto& [key, bytes] : file->tensors) {
      at::Tensor tensor = *io::ToTorch(bytes);
      if (key.starts_with("weight.")) weights[key.substr(7)] = tensor.to(at::kFloat);
      if (key.starts_with("in.")) in[key.substr(3)] = tensor;
      if (key.starts_with("out.")) out[key.substr(4)] = tensor;
      if (key.starts_with("grad.")) gradients[key.substr(5)] = tensor;
    }
  }
  std::string config;
  NamedTensors weights, in, out, gradients;
};

void ExpectClose(const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes());
  EXPECT_LE((ours - golden).abs().max().item<double>(),
            kOutputTolerance * std::max(1.0, golden.abs().max().item<double>()));
}

void ExpectGradients(const ParameterSet& set, const NamedTensors& golden) {
  ASSERT_FALSE(golden.empty());
  for (const auto& [name, expected] : golden) {
    // The floor is for key biases, to which softmax is blind: their gradient is rounding alone.
    const double scale = std::max(0.1, expected.abs().max().item<double>());
    const double error = (set.Get(name).grad() - expected).abs().max().item<double>();
    EXPECT_LE(error, kGradientTolerance * scale) << name << " of scale " << scale;
  }
}

class Sd3GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(Sd3GoldenTest, OutputsAndGradientsAreThoseOfDiffusers) {
  const Golden golden(GetParam());
  const auto params = ParseSd3Config(golden.config);
  ASSERT_TRUE(params.ok()) << params.status();
  NamedTensors trained = golden.weights;
  trained.erase(kSd3PositionTable);
  ParameterSet set(trained, /*trainable=*/true);
  NamedTensors all = set.tensors();
  all[kSd3PositionTable] = golden.weights.at(kSd3PositionTable);
  const auto model = MakeSd3Transformer(*params, all);
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor v = (*model)->Velocity(golden.in.at("x"), golden.in.at("sigma"),
                                          {golden.in.at("tokens"), golden.in.at("pooled")});
  ExpectClose(v, golden.out.at("v"));
  (v * golden.in.at("direction")).sum().backward();
  ExpectGradients(set, golden.gradients);
}

TEST_P(Sd3GoldenTest, ConfigAndInitialWeightsDescribeTheSameModel) {
  const Golden golden(GetParam());
  const auto params = ParseSd3Config(golden.config);
  ASSERT_TRUE(params.ok()) << params.status();
  const auto again = ParseSd3Config(Sd3ConfigJson(*params));
  ASSERT_TRUE(again.ok()) << again.status();
  RandomStream random({.seed = 1});
  const NamedTensors fresh = InitialSd3Weights(*again, random);
  EXPECT_TRUE(MakeSd3Transformer(*params, fresh).ok());
  EXPECT_TRUE(
      at::allclose(fresh.at(kSd3PositionTable), golden.weights.at(kSd3PositionTable), 0, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Configs, Sd3GoldenTest,
                         testing::Values("sd3_digits", "sd3_dual_rms", "sd3_tall_three_heads",
                                         "sd3_last_block_dual"));

class ClipGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(ClipGoldenTest, OutputsAndGradientsAreThoseOfTransformers) {
  const Golden golden(GetParam());
  const auto params = ParseClipTextConfig(golden.config);
  ASSERT_TRUE(params.ok()) << params.status();
  ParameterSet set(golden.weights, /*trainable=*/true);
  const auto encoder = MakeClipTextEncoder(*params, set.tensors());
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const ClipTextOutput text = (*encoder)->Encode(golden.in.at("ids"));
  ExpectClose(text.penultimate, golden.out.at("penultimate"));
  ExpectClose(text.pooled, golden.out.at("pooled"));
  ((text.penultimate * golden.in.at("direction")).sum() +
   (text.pooled * golden.in.at("pooled_direction")).sum())
      .backward();
  ExpectGradients(set, golden.gradients);
}

INSTANTIATE_TEST_SUITE_P(Configs, ClipGoldenTest,
                         testing::Values("clip_quick_gelu", "clip_gelu_legacy_eos"));

}  // namespace
}  // namespace oxbow::model
