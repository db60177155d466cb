// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/exported_network.h"

#include "core/model/architecture.h"
#include "core/model/exported_graph/settled_nodes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/small_graph.h"

namespace oxbow::model::exported {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// Promise: Rewards are those of their projects.

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

// A graph of x (slot 0): 1 = x + x, 2 = relu(1), 3 = relu(x), 4 = view(2), 5 = relu(4), 6 = 5 x 3,
// 7 = relu(6), 8 = 6 + 7, 9 = 8 + 8, 10 = relu(9).
TEST(ExportedNetworkTest, ReluWritesOverWhatNobodyElseReads) {
  Graph graph;
  const auto node = [&](const std::string& op, std::vector<Slot> reads, Slot made) {
    GraphNode& added = graph.nodes.emplace_back(GraphNode{.op = op, .outputs = {made}});
    for (const Slot slot : reads) added.arguments.emplace_back("of", Value{SlotRef{slot}});
  };
  node("aten::add", {0, 0}, 1);
  node("aten::relu", {1}, 2);
  node("aten::relu", {0}, 3);
  node("aten::view", {2}, 4);
  node("aten::relu", {4}, 5);
  node("aten::mul", {5, 3}, 6);
  node("aten::relu", {6}, 7);
  node("aten::add", {6, 7}, 8);
  node("aten::add", {8, 8}, 9);
  node("aten::relu", {9}, 10);
  std::vector<size_t> in_place;
  const auto find = [&] {
    in_place.clear();
    const Graph changed = OverwriteDeadInputs(graph);
    for (size_t i = 0; i < changed.nodes.size(); ++i) {
      if (changed.nodes[i].op == "aten::relu_") in_place.push_back(i);
    }
  };
  find();
  EXPECT_THAT(in_place, ElementsAre(1, 9)) << "an input, a view, and what is read twice stay";
  graph.outputs = {{.name = "sum", .slot = 9}};
  find();
  EXPECT_THAT(in_place, ElementsAre(1));
}

// 1 = linear(x), 2 = silu(1), 3 = linear(2), 4 = 3 + x, 5 = 4 / 1, 6 = 5 / 2, 7 = x / 1.
TEST(ExportedNetworkTest, ADivisionOfRealNumbersByOneIsLeftOut) {
  Graph graph;
  const auto node = [&](const std::string& op, Slot read, Slot made) -> GraphNode& {
    GraphNode& added = graph.nodes.emplace_back(GraphNode{.op = op, .outputs = {made}});
    added.arguments.emplace_back("self", Value{SlotRef{read}});
    return added;
  };
  node("aten::linear", 0, 1);
  node("aten::silu", 1, 2);
  node("aten::linear", 2, 3);
  node("aten::add", 3, 4).arguments.emplace_back("other", Value{SlotRef{0}});
  node("aten::div", 4, 5).arguments.emplace_back("other", Value{1.0});
  node("aten::div", 5, 6).arguments.emplace_back("other", Value{int64_t{2}});
  node("aten::div", 0, 7).arguments.emplace_back("other", Value{int64_t{1}});
  std::vector<std::string> ops;
  for (const GraphNode& changed : OverwriteDeadInputs(graph).nodes) ops.push_back(changed.op);
  EXPECT_THAT(ops, ElementsAre("aten::linear", "aten::silu_", "aten::linear", "aten::add",
                               "aten::detach", "aten::div", "aten::div"))
      << "x may be a whole number";
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

// Embeddings are multiplied by a weight before they are looked up.
json ScaledNetwork() {
  json graph = SmallNetwork();
  graph["slots"] = 11;
  graph["parameters"].push_back({{"name", "scale"}, {"slot", 9}, {"shape", {1}}});
  graph["nodes"][0]["args"]["weight"] = {{"v", 10}};
  const json scaled = {{"op", "aten::mul"},
                       {"overload", "Tensor"},
                       {"args", {{"self", {{"v", 2}}}, {"other", {{"v", 9}}}}},
                       {"out", 10}};
  graph["nodes"].insert(graph["nodes"].begin(), scaled);
  return graph;
}

TEST(ExportedNetworkTest, NodesOfWeightsAloneRunOnceAndWhatTheyReadIsDropped) {
  NamedTensors weights = Weights();
  weights["scale"] = at::full({1}, 3.0);
  const Graph graph = *ParseNetwork(ScaledNetwork().dump(), "SmallReward", "");
  NamedTensors left = weights;
  const auto settled = SettleNodes(graph, left);
  ASSERT_TRUE(settled.ok()) << settled.status();
  EXPECT_EQ(settled->nodes.size(), graph.nodes.size() - 1);
  ASSERT_EQ(settled->parameters.size(), 1u);
  EXPECT_EQ(settled->parameters[0].name, "in.weight");
  EXPECT_FALSE(left.contains("words.weight"));
  EXPECT_FALSE(left.contains("scale"));
  ASSERT_EQ(settled->constants.size(), 1u);
  EXPECT_TRUE(at::equal(settled->constants[0].tensor, weights["words.weight"] * 3));

  const NamedTensors inputs = Inputs(4);
  const auto network = ExportedNetwork::Make(graph, weights, {});
  ASSERT_TRUE(network.ok()) << network.status();
  NamedTensors plain = Weights();
  plain["words.weight"] = plain["words.weight"] * 3;
  const auto same =
      ExportedNetwork::Make(*ParseNetwork(SmallNetwork().dump(), "SmallReward", ""), plain, {});
  EXPECT_TRUE(at::equal((*network)->Run(inputs)->at("both"), (*same)->Run(inputs)->at("both")));
}

TEST(ExportedNetworkTest, NodesThatWriteInPlaceAreNotSettled) {
  json graph = ScaledNetwork();
  graph["nodes"][0]["op"] = "aten::mul_";
  NamedTensors weights = Weights();
  weights["scale"] = at::full({1}, 3.0);
  const absl::Status status =
      ExportedNetwork::Make(*ParseNetwork(graph.dump(), "SmallReward", ""), weights, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("writes to a weight"));
}

TEST(ExportedNetworkTest, ObjectsOfAConfigAreComparedKeyByKey) {
  json graph = SmallNetwork();
  graph["config"]["inner"] = {{"scale", 0.5}, {"act", "relu"}};
  graph["defaults"]["inner"] = {{"scale", 0.5}, {"act", "relu"}};
  graph["defaults"]["inner.act"] = "relu";
  graph["defaults"]["inner.scale"] = 1;
  const auto refusal = [&](const char* config) {
    return std::string(ParseNetwork(graph.dump(), "SmallReward", config).status().message());
  };
  EXPECT_EQ(refusal(R"({"inner": {"scale": 0.5, "dtype": null}})"), "");
  EXPECT_EQ(refusal("{}"), "");
  EXPECT_EQ(refusal(R"({"inner": {"act": "relu"}})"), "inner.scale is 1, and the graph is for 0.5");
  EXPECT_EQ(refusal(R"({"inner": {"scale": 0.5, "act": "gelu"}})"),
            "inner.act is \"gelu\", and the graph is for \"relu\"");
  EXPECT_EQ(refusal(R"({"inner": 7})"),
            "inner is 7, and the graph is for {\"act\":\"relu\",\"scale\":0.5}");
}

TEST(ExportedNetworkTest, ATransformerIsNoNetworkOfAnotherKind) {
  const absl::Status status =
      ReadArchitecture(
          {.class_name = "SmallReward", .config_json = "{}", .graph_json = SmallNetwork().dump()})
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a transformer's graph"));
}

}  // namespace
}  // namespace oxbow::model::exported
