// SPDX-License-Identifier: Apache-2.0
// A norm that is spelled out becomes one call with its value and its gradients, and nothing else
// does.
#include "core/model/exported_graph/fused_norms.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <functional>

#include "core/model/exported_graph/packed_convolution.h"
#include "core/model/exported_graph/rms_norm.h"
#include "core/model/exported_graph/shared_nodes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::model::exported {
namespace {

using ::testing::ElementsAre;

// silu(x), its norm of 6 values with the weight of slot 20, and silu of that. The block is the
// norm.
Graph GraphWithNorm() {
  Graph graph;
  const auto ref = [](Slot slot) { return Value{SlotRef{slot}}; };
  const auto node = [&](std::string op, std::vector<std::pair<std::string, Value>> arguments,
                        Slot made) {
    graph.nodes.push_back(
        {.op = std::move(op), .arguments = std::move(arguments), .outputs = {made}});
  };
  node("aten::silu", {{"self", ref(0)}}, 1);
  node("aten::pow", {{"self", ref(1)}, {"exponent", {int64_t{2}}}}, 2);
  node("aten::mean", {{"self", ref(2)}, {"dim", {Value::List{{int64_t{-1}}}}}, {"keepdim", {true}}},
       3);
  node("aten::add", {{"self", ref(3)}, {"other", {1e-6}}}, 4);
  node("aten::rsqrt", {{"self", ref(4)}}, 5);
  node("aten::mul", {{"self", ref(1)}, {"other", ref(5)}}, 6);
  node("aten::mul", {{"self", ref(6)}, {"other", ref(20)}}, 7);
  node("aten::silu", {{"self", ref(7)}}, 8);
  graph.parameters = {{.name = "norm.weight", .slot = 20, .shape = {6}}};
  graph.outputs = {{.name = "v", .slot = 8}};
  graph.blocks = {{.name = "block", .first = 1, .end = 7}};
  graph.slots = 21;
  return graph;
}

std::vector<std::string> Operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphNode& node : graph.nodes) names.push_back(node.op);
  return names;
}

TEST(FusedNormsTest, ASpelledOutNormIsOneNodeAndItsBlockMovesWithIt) {
  const Graph fused = FuseRmsNorms(GraphWithNorm());
  EXPECT_THAT(Operators(fused), ElementsAre("aten::silu", "aten::rms_norm", "aten::silu"));
  EXPECT_EQ(fused.blocks[0].first, 1u);
  EXPECT_EQ(fused.blocks[0].end, 2u);
  EXPECT_THAT(fused.nodes[1].outputs, ElementsAre(7));
  Graph turned = GraphWithNorm();
  std::swap(turned.nodes[5].arguments[0].second, turned.nodes[5].arguments[1].second);
  std::swap(turned.nodes[6].arguments[0].second, turned.nodes[6].arguments[1].second);
  EXPECT_EQ(FuseRmsNorms(turned).nodes.size(), 3u) << "factors may stand in either order";
}

// Two blocks of x = x silu(condition): 0 is the condition, 10 is x.
TEST(ShareActivationsTest, TheConditionsActivationStandsBeforeTheBlocks) {
  Graph graph;
  const auto node = [&](std::string op, std::vector<Slot> inputs, Slot made) {
    GraphNode& added = graph.nodes.emplace_back(GraphNode{.op = std::move(op), .outputs = {made}});
    const char* names[] = {"self", "other"};
    for (size_t i = 0; i < inputs.size(); ++i) {
      added.arguments.emplace_back(names[i], Value{SlotRef{inputs[i]}});
    }
  };
  node("aten::neg", {10}, 11);
  node("aten::silu", {11}, 12);
  node("aten::silu", {0}, 1);
  node("aten::mul", {12, 1}, 2);
  node("aten::silu", {0}, 3);
  node("aten::silu", {11}, 13);
  node("aten::mul", {2, 3}, 4);
  graph.outputs = {{.name = "v", .slot = 4}};
  graph.blocks = {{.name = "a", .first = 0, .end = 4}, {.name = "b", .first = 4, .end = 7}};
  graph.slots = 14;
  const Graph shared = ShareActivations(graph);
  EXPECT_THAT(Operators(shared),
              ElementsAre("aten::silu", "aten::neg", "aten::silu", "aten::mul", "aten::mul"))
      << "what a block makes is activated in it";
  EXPECT_EQ(shared.blocks[0].first, 1u);
  EXPECT_EQ(shared.blocks[0].end, 4u);
  EXPECT_EQ(shared.blocks[1].first, 4u);
  EXPECT_EQ(shared.blocks[1].end, 5u);
  EXPECT_THAT(shared.nodes[0].outputs, ElementsAre(1));
}

struct NoNorm {
  const char* why;
  std::function<void(Graph&)> change;
};

TEST(FusedNormsTest, WhatIsNotQuiteOneStays) {
  const NoNorm cases[] = {
      {"a value inside is read again",
       [](Graph& graph) { graph.nodes[7].arguments[0].second = {SlotRef{5}}; }},
      {"a value inside is a result", [](Graph& graph) { graph.outputs[0].slot = 6; }},
      {"a cube", [](Graph& graph) { graph.nodes[1].arguments[1].second = {int64_t{3}}; }},
      {"a mean over rows",
       [](Graph& graph) { graph.nodes[2].arguments[1].second = {Value::List{{int64_t{1}}}}; }},
      {"a mean that drops its size",
       [](Graph& graph) { graph.nodes[2].arguments[2].second = {false}; }},
      {"eps that is computed",
       [](Graph& graph) { graph.nodes[3].arguments[1].second = {SlotRef{0}}; }},
      {"twice eps",
       [](Graph& graph) {
         graph.nodes[3].arguments.push_back({"alpha", {int64_t{2}}});
       }},
      {"another value is scaled",
       [](Graph& graph) { graph.nodes[5].arguments[0].second = {SlotRef{0}}; }},
      {"a weight that is no checkpoint's", [](Graph& graph) { graph.parameters.clear(); }},
      {"a weight per row",
       [](Graph& graph) {
         graph.parameters[0].shape = {6, 1};
       }},
      {"a block ends inside", [](Graph& graph) { graph.blocks[0].end = 5; }},
      {"a value is written in place", [](Graph& graph) { graph.nodes[5].op = "aten::mul_"; }},
  };
  for (const NoNorm& no : cases) {
    Graph graph = GraphWithNorm();
    no.change(graph);
    EXPECT_EQ(Operators(FuseRmsNorms(graph)), Operators(graph)) << no.why;
  }
}

at::Tensor SpelledOut(const at::Tensor& x, const at::Tensor& weight) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-6) * weight;
}

TEST(FusedNormsTest, ItsValueHasTheSameBitsAndItsGradientsAreExact) {
  at::manual_seed(3);
  for (const int64_t width : {1, 6, 64}) {
    const at::Tensor x = at::randn({3, 5, width}).requires_grad_();
    const at::Tensor weight = at::randn({width}).requires_grad_();
    const at::Tensor dy = at::randn({3, 5, width});
    const auto norm = [&](const at::Tensor& w) {
      torch::jit::Stack stack = {x, std::vector<int64_t>{width}, w, 1e-6};
      EXPECT_TRUE(NormalizeRms(stack));
      return stack[0].toTensor();
    };
    EXPECT_TRUE(norm(weight).equal(SpelledOut(x, weight)));
    {
      const at::NoGradGuard no_gradients;
      EXPECT_TRUE(norm(weight).equal(SpelledOut(x, weight)));
    }
    norm(weight).backward(dy);
    const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor weight64 = weight.detach().to(at::kDouble).requires_grad_();
    SpelledOut(x64, weight64).backward(dy.to(at::kDouble));
    const auto close = [](const at::Tensor& a, const at::Tensor& b) {
      return (a.to(at::kDouble) - b).abs().max().item<double>() <=
             1e-6 * (1 + b.abs().max().item<double>());
    };
    EXPECT_TRUE(close(x.grad(), x64.grad())) << width;
    EXPECT_TRUE(close(weight.grad(), weight64.grad())) << width;
    x.mutable_grad() = at::Tensor();
    norm(weight.detach()).backward(dy);
    EXPECT_TRUE(close(x.grad(), x64.grad())) << "a weight that does not train";
  }
}

TEST(PackedConvolutionTest, ComputesWhatTheOperatorDoes) {
  at::manual_seed(5);
  for (const int64_t kernel : {1, 9}) {
    const at::Tensor weight = at::randn({8, 12, kernel, kernel}) / double(kernel);
    Graph graph;
    graph.nodes.push_back({.op = "aten::conv2d",
                           .arguments = {{"input", {SlotRef{0}}}, {"weight", {SlotRef{1}}}},
                           .outputs = {2}});
    graph.parameters = {{.name = "w", .slot = 1, .shape = {8, 12, kernel, kernel}}};
    NamedTensors weights = {{"w", weight.clone()}};
    PackPixelLayers(graph, weights);
    EXPECT_EQ(weights.at("w").is_mkldnn(), kernel == 1 && at::hasMKLDNN());
    const std::vector<int64_t> ones = {1, 1}, padding(2, kernel / 2);
    for (const bool biased : {false, true}) {
      const at::Tensor bias = biased ? at::randn({8}) : at::Tensor();
      const auto call = PackedConvolution::Of({c10::IValue(), weights.at("w"),
                                               biased ? c10::IValue(bias) : c10::IValue(), ones,
                                               padding, ones, int64_t{1}});
      ASSERT_TRUE(call.has_value());
      const at::Tensor plain = at::randn({2, 12, 7, 10});
      for (const at::Tensor& x : {plain, plain.contiguous(at::MemoryFormat::ChannelsLast)}) {
        const at::Tensor expected =
            at::conv2d(plain, weight, biased ? std::optional(bias) : std::nullopt, ones, padding);
        EXPECT_TRUE(at::allclose((*call)(x), expected, 1e-5, 1e-5)) << kernel << biased;
      }
    }
  }
}

TEST(PackedConvolutionTest, OtherConvolutionsKeepTheirWeights) {
  const auto packs = [](std::vector<std::pair<std::string, Value>> more, int readers = 1) {
    Graph graph;
    for (int i = 0; i < readers; ++i) {
      graph.nodes.push_back({.op = "aten::conv2d",
                             .arguments = {{"input", {SlotRef{0}}}, {"weight", {SlotRef{1}}}},
                             .outputs = {2 + i}});
      for (const auto& argument : more) graph.nodes[i].arguments.push_back(argument);
    }
    graph.constants = {{.slot = 1, .tensor = at::randn({4, 4, 1, 1})}};
    NamedTensors weights;
    PackPixelLayers(graph, weights);
    return graph.constants[0].tensor.is_mkldnn();
  };
  const Value two{Value::List{{int64_t{2}}, {int64_t{2}}}};
  EXPECT_EQ(packs({}), at::hasMKLDNN());
  EXPECT_FALSE(packs({{"stride", two}}));
  EXPECT_FALSE(packs({{"padding", {int64_t{1}}}}));
  EXPECT_FALSE(packs({{"groups", {int64_t{4}}}}));
  EXPECT_FALSE(packs({}, /*readers=*/2));
}

}  // namespace
}  // namespace oxbow::model::exported
