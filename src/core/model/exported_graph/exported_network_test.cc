#include "core/model/exported_graph/exported_network.h"

#include "core/model/exported_graph/exported_architecture.h"
#include "core/model/exported_graph/small_graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::model::exported {
namespace {

using nlohmann::json;
using testing::HasSubstr;

NamedTensors Weights() {
  at::manual_seed(4);
  return {{"words.weight", at::randn({5, 4})},
          {"in.weight", at::randn({4, 2})},
          {"of_another_task.weight", at::randn({3})}};
}

std::unique_ptr<ExportedNetwork> Network(const NetworkOptions& options = {}) {
  auto network = ExportedNetwork::Make(*ParseNetwork(SmallNetwork().dump(), "SmallReward", ""),
                                       Weights(), options);
  EXPECT_TRUE(network.ok()) << network.status();
  return *std::move(network);
}

NamedTensors Inputs(int64_t rows) {
  return {{"ids", at::arange(rows * 3).remainder(5).view({rows, 3})}, {"x", at::randn({rows, 2})}};
}

std::string Refusal(const NamedTensors& inputs) {
  const absl::Status status = Network()->Run(inputs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(ExportedNetworkTest, OutputsAreWhatTheGraphComputesByName) {
  for (const int64_t rows : {1, 2, 5}) {
    const NamedTensors inputs = Inputs(rows), weights = Weights();
    const auto outputs = Network()->Run(inputs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const at::Tensor both = at::embedding(weights.at("words.weight"), inputs.at("ids")).mean(1) +
                            at::linear(inputs.at("x"), weights.at("in.weight"));
    EXPECT_TRUE(at::allclose(outputs->at("both"), both));
    EXPECT_TRUE(at::allclose(outputs->at("total"), both.sum(1)));
    EXPECT_EQ(outputs->size(), 2u);
    EXPECT_FALSE(outputs->at("both").requires_grad());
  }
}

TEST(ExportedNetworkTest, ProductsHaveTheTypeAskedForAndOutputsAreFloat32) {
  const NamedTensors inputs = Inputs(4);
  const auto exact = Network()->Run(inputs);
  const auto rough = Network({.compute = at::kBFloat16})->Run(inputs);
  ASSERT_TRUE(rough.ok()) << rough.status();
  EXPECT_EQ(rough->at("both").scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(rough->at("both"), exact->at("both"), 0.05, 0.05));
  EXPECT_FALSE(at::equal(rough->at("both"), exact->at("both")));
}

TEST(ExportedNetworkTest, InputsThatAreNotTheGraphsAreNamed) {
  NamedTensors inputs = Inputs(2);
  inputs["y"] = inputs["x"];
  EXPECT_EQ(Refusal(inputs), "no such input: y");
  inputs.erase("y");
  inputs["ids"] = inputs["ids"].to(at::kFloat);
  EXPECT_EQ(Refusal(inputs), "input ids: Float instead of Long");
  inputs["ids"] = Inputs(3)["ids"];
  EXPECT_EQ(Refusal(inputs), "input x: dimension 0 has 2 instead of 3");
  inputs.erase("x");
  EXPECT_EQ(Refusal(inputs), "missing input: x");
}

TEST(ExportedNetworkTest, AnOperatorThatFailsNamesItsNode) {
  NamedTensors inputs = Inputs(2);
  inputs["ids"].fill_(77);
  const absl::Status status = Network()->Run(inputs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("SmallReward: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nodes[0] (aten::embedding)"));
}

TEST(ExportedNetworkTest, WeightsThatDoNotFitAreNamed) {
  NamedTensors weights = Weights();
  weights["words.weight"] = at::randn({6, 4});
  weights.erase("in.weight");
  const absl::Status status =
      ExportedNetwork::Make(*ParseNetwork(SmallNetwork().dump(), "SmallReward", ""), weights, {})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in.weight"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("words.weight"));
}

TEST(ExportedNetworkTest, FilesThatAreNoNetworkAreRefused) {
  const auto refusal = [](const json& graph, const std::string& config = "") {
    const absl::Status status = ParseNetwork(graph.dump(), "SmallReward", config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(SmallGraph()), HasSubstr("a transformer's graph"));
  EXPECT_THAT(refusal(SmallNetwork(), R"({"width": 5})"), HasSubstr("width is 5"));
  json graph = SmallNetwork();
  graph["class"] = "Other";
  EXPECT_EQ(refusal(graph), "class: Other instead of SmallReward");
  graph = SmallNetwork();
  graph["outputs"] = json::array();
  EXPECT_THAT(refusal(graph), HasSubstr("outputs"));
  graph = SmallNetwork();
  graph["outputs"][1]["name"] = "total";
  EXPECT_THAT(refusal(graph), HasSubstr("twice: total"));
  graph["outputs"][1] = {{"name", "late"}, {"slot", 9}};
  EXPECT_THAT(refusal(graph), HasSubstr("outputs[1].slot"));
  graph = SmallNetwork();
  graph["inputs"][0]["dtype"] = "int32";
  EXPECT_THAT(refusal(graph), HasSubstr("inputs[0].dtype"));
}

TEST(ExportedNetworkTest, ATransformerIsNoNetworkOfAnotherKind) {
  const absl::Status status =
      ReadExportedArchitecture(
          {.class_name = "SmallReward", .config_json = "{}", .graph_json = SmallNetwork().dump()})
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a transformer's graph"));
}

}  // namespace
}  // namespace oxbow::model::exported
