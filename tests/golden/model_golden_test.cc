// SPDX-License-Identifier: Apache-2.0
// Our transformer and text encoder against diffusers' and transformers': outputs and gradients. And
// the published sizes against what diffusers makes of their configs.
#include "tests/golden/model_golden.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/sha256.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/initial_weights.h"

namespace oxbow::model {
namespace {

constexpr double kBlindGradient = 0.1;  // For key biases: softmax does not see them.

class Sd3GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(Sd3GoldenTest, OutputsAndGradientsAreThoseOfDiffusers) {
  const Golden golden(GetParam());
  NamedTensors trained = golden.weights;
  trained.erase(kPositionTable);
  ParameterSet set(trained, /*trainable=*/true);
  NamedTensors all = set.tensors();
  all[kPositionTable] = golden.weights.at(kPositionTable);
  const auto model = golden.Network()->Make(all, nullptr, {});
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor v = (*model)->Velocity(
      golden.in.at("x"), golden.in.at("sigma"),
      {{kPromptTokens, golden.in.at("tokens")}, {kPooledPrompt, golden.in.at("pooled")}});
  ExpectClose(v, golden.out.at("v"));
  (v * golden.in.at("direction")).sum().backward();
  ExpectGradients(set, golden.gradients, kBlindGradient);
}

TEST_P(Sd3GoldenTest, GraphAndInitialWeightsDescribeTheSameModel) {
  const Golden golden(GetParam());
  const auto network = golden.Network();
  RandomStream random({.seed = 1});
  const NamedTensors fresh = InitialWeights(*network, random);
  EXPECT_TRUE(network->Make(fresh, nullptr, {}).ok());
  EXPECT_TRUE(at::allclose(fresh.at(kPositionTable), golden.weights.at(kPositionTable), 0, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Configs, Sd3GoldenTest, ::testing::ValuesIn(GoldenNames("sd3")),
                         [](const auto& info) { return info.param; });

TEST(PublishedSizesTest, HaveTheTensorsThatDiffusersGivesThem) {
  const auto text = ReadFile(GoldenPath("published_shapes.json"));
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json table = nlohmann::json::parse(*text);
  for (const auto& [name, model] : table.items()) {
    const std::string config = model["config"].dump();
    const Shapes shapes =
        testing::GraphArchitecture(
            absl::StrCat("models/graphs/SD3Transformer2DModel-", name, ".json.gz"))
            ->shapes();
    std::string lines;
    int64_t elements = 0;
    for (const auto& [tensor, shape] : shapes) {
      absl::StrAppend(&lines, tensor, " ", absl::StrJoin(shape, ","), "\n");
      int64_t numel = 1;
      for (const int64_t size : shape) numel *= size;
      elements += numel;
    }
    EXPECT_EQ(shapes.size(), model["tensors"].get<size_t>()) << name;
    EXPECT_EQ(elements, model["elements"].get<int64_t>()) << name;
    EXPECT_EQ(Sha256Hex(lines), model["sha256"].get<std::string>()) << name;
  }
}

// A directory may hold some kinds only.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Sd3GoldenTest);

}  // namespace
}  // namespace oxbow::model
