// SPDX-License-Identifier: Apache-2.0
// Chains that a kernel can compute are found and moved together, others stay; values that products
// alone read are rounded once; a result that is not that of the nodes is refused.
#include "core/model/exported_graph/fusions.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <stdexcept>

#include "core/model/device.h"
#include "core/model/exported_graph/fused_call.h"
#include "core/model/exported_graph/interpreter.h"
#include "core/model/exported_graph/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::model::exported {
namespace {

using ::testing::ElementsAre;

Value Ref(Slot slot) { return {SlotRef{slot}}; }

// x in slot 0, scale and shift and gate in 1, 2, 3, a linear layer's weight in 30:
//
//   n = layer_norm(x); o = silu(shift); m = n (1 + scale) + o; y = Linear(m); v = x + gate y
Graph ModulatedGraph() {
  Graph graph;
  const auto node = [&](std::string op, std::string overload,
                        std::vector<std::pair<std::string, Value>> arguments, Slot made) {
    graph.nodes.push_back({.op = std::move(op),
                           .overload = std::move(overload),
                           .arguments = std::move(arguments),
                           .outputs = {made}});
  };
  node("aten::layer_norm", "",
       {{"input", Ref(0)}, {"normalized_shape", {Value::List{{int64_t{8}}}}}, {"eps", {1e-6}}}, 4);
  node("aten::add", "Tensor", {{"self", Ref(1)}, {"other", {int64_t{1}}}}, 5);
  node("aten::silu", "", {{"self", Ref(2)}}, 6);
  node("aten::mul", "Tensor", {{"self", Ref(4)}, {"other", Ref(5)}}, 7);
  node("aten::add", "Tensor", {{"self", Ref(7)}, {"other", Ref(6)}}, 8);
  node("aten::linear", "", {{"input", Ref(8)}, {"weight", Ref(30)}}, 9);
  node("aten::to", "dtype", {{"self", Ref(9)}, {"dtype", {at::kFloat}}}, 10);
  node("aten::mul", "Tensor", {{"self", Ref(10)}, {"other", Ref(3)}}, 11);
  node("aten::add", "Tensor", {{"self", Ref(0)}, {"other", Ref(11)}}, 12);
  for (const auto& [name, slot] : {std::pair("x", 0), {"scale", 1}, {"shift", 2}, {"gate", 3}}) {
    graph.inputs.push_back({.name = name, .slot = slot});
  }
  graph.parameters = {{.name = "out.weight", .slot = 30, .shape = {8, 8}, .linear = true}};
  graph.outputs = {{.name = "v", .slot = 12}};
  graph.slots = 31;
  return graph;
}

std::vector<std::string> Operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphNode& node : graph.nodes) names.push_back(node.op);
  return names;
}

TEST(FusionsTest, ChainsMoveTogetherToTheirLastNode) {
  Graph graph = ModulatedGraph();
  graph.blocks = {{.name = "block", .first = 0, .end = 6}};
  const std::vector<Fusion> fusions = FindFusions(graph);
  EXPECT_THAT(Operators(graph),
              ElementsAre("aten::silu", "aten::layer_norm", "aten::add", "aten::mul", "aten::add",
                          "aten::linear", "aten::to", "aten::mul", "aten::add"));
  EXPECT_EQ(graph.blocks[0].end, 6u);
  ASSERT_EQ(fusions.size(), 2u);
  const Fusion& norm = fusions[0];
  EXPECT_EQ(norm.kind, FusionKind::kNorm);
  EXPECT_THAT((std::vector<size_t>{norm.first, norm.end}), ElementsAre(1, 5));
  EXPECT_THAT(InputsOf(norm), ElementsAre(0, 1, 6));
  EXPECT_EQ(norm.result, 8);
  EXPECT_EQ(norm.eps, 1e-6);
  const Fusion& gate = fusions[1];
  EXPECT_EQ(gate.kind, FusionKind::kGate);
  EXPECT_THAT((std::vector<size_t>{gate.first, gate.end}), ElementsAre(6, 9));
  EXPECT_THAT(InputsOf(gate), ElementsAre(0, 9, 3));
  EXPECT_TRUE(gate.exact) << "the product is cast to float32";
}

struct Other {
  const char* why;
  std::function<void(Graph&)> change;
  size_t gates = 1;
};

TEST(FusionsTest, WhatIsNotQuiteOneStays) {
  const auto argument = [](size_t node, size_t i, Value value) {
    return [=](Graph& graph) { graph.nodes[node].arguments[i].second = value; };
  };
  const Other cases[] = {
      {"twice the scale", argument(1, 1, {int64_t{2}})},
      {"a value inside is read again", argument(5, 0, Ref(7))},
      {"a value inside is a result",
       [](Graph& graph) { graph.outputs.push_back({.name = "w", .slot = 7}); }},
      {"a weighted sum",
       [](Graph& graph) {
         for (const size_t i : {4, 8}) graph.nodes[i].arguments.push_back({"alpha", {int64_t{2}}});
       },
       0},
      {"a block ends inside",
       [](Graph& graph) {
         graph.blocks = {{"block", 0, 4}};
       }},
      {"a value is written in place", [](Graph& graph) { graph.nodes[2].op = "aten::silu_"; }},
  };
  for (const Other& other : cases) {
    Graph graph = ModulatedGraph();
    other.change(graph);
    size_t whole = 0, gates = 0;
    for (const Fusion& fusion : FindFusions(graph)) {
      whole += fusion.kind == FusionKind::kNorm && fusion.result == 8 ? 1 : 0;
      gates += fusion.kind == FusionKind::kGate && fusion.result == 12 ? 1 : 0;
    }
    EXPECT_EQ(whole, 0u) << other.why;
    EXPECT_EQ(gates, other.gates) << other.why;
  }
}

// A second factor and shift of the same normal values, after the first ones.
Graph TwiceModulatedGraph() {
  Graph graph = ModulatedGraph();
  const auto node = [&](std::string op, Slot self, Value other, Slot made) {
    return GraphNode{.op = std::move(op),
                     .overload = "Tensor",
                     .arguments = {{"self", Ref(self)}, {"other", std::move(other)}},
                     .outputs = {made}};
  };
  const std::vector<GraphNode> more = {node("aten::add", 3, {int64_t{1}}, 13),
                                       node("aten::mul", 4, Ref(13), 14),
                                       node("aten::add", 14, Ref(1), 15)};
  graph.nodes.insert(graph.nodes.begin() + 5, more.begin(), more.end());
  graph.outputs.push_back({.name = "w", .slot = 15});
  return graph;
}

TEST(FusionsTest, TwoModulationsOfOneNormAreOneChain) {
  Graph graph = TwiceModulatedGraph();
  std::vector<Fusion> fusions = FindFusions(graph);
  ASSERT_EQ(fusions.size(), 2u);
  EXPECT_THAT(ResultsOf(fusions[0]), ElementsAre(8, 15));
  EXPECT_THAT(InputsOf(fusions[0]), ElementsAre(0, 1, 6, 3, 1));
  EXPECT_EQ(fusions[0].end - fusions[0].first, 7u);

  graph = TwiceModulatedGraph();
  std::swap(graph.nodes[5], graph.nodes[8]);  // The linear layer runs before the second ends.
  std::swap(graph.nodes[6], graph.nodes[7]);
  std::swap(graph.nodes[7], graph.nodes[8]);
  for (const Fusion& fusion : FindFusions(graph)) {
    EXPECT_FALSE(fusion.kind == FusionKind::kNorm && fusion.by.size() == 2)
        << "its first result would come too late";
  }
}

TEST(FusionsTest, AScaleOfSamplesMayBecomeOneOfTokensAfterItsSum) {
  Graph graph = ModulatedGraph();
  graph.nodes.insert(graph.nodes.begin() + 2,
                     {.op = "aten::unsqueeze",
                      .arguments = {{"self", Ref(5)}, {"dim", {int64_t{1}}}},
                      .outputs = {13}});
  graph.nodes[4].arguments[1].second = Ref(13);
  const std::vector<Fusion> fusions = FindFusions(graph);
  ASSERT_EQ(fusions.size(), 2u);
  EXPECT_EQ(fusions[0].result, 8);
  EXPECT_TRUE(fusions[0].by[0].of_samples);
}

TEST(FusionsTest, AnRmsNormThatIsSpelledOutIsModulated) {
  Graph graph = ModulatedGraph();
  const std::vector<GraphNode> spelled = {
      {.op = "aten::pow",
       .arguments = {{"self", Ref(0)}, {"exponent", {int64_t{2}}}},
       .outputs = {20}},
      {.op = "aten::mean",
       .arguments = {{"self", Ref(20)}, {"dim", {Value::List{{int64_t{-1}}}}}, {"keepdim", {true}}},
       .outputs = {21}},
      {.op = "aten::add", .arguments = {{"self", Ref(21)}, {"other", {1e-5}}}, .outputs = {22}},
      {.op = "aten::rsqrt", .arguments = {{"self", Ref(22)}}, .outputs = {23}},
      {.op = "aten::mul", .arguments = {{"self", Ref(0)}, {"other", Ref(23)}}, .outputs = {4}}};
  graph.nodes.erase(graph.nodes.begin());
  graph.nodes.insert(graph.nodes.begin(), spelled.begin(), spelled.end());
  const std::vector<Fusion> fusions = FindFusions(graph);
  ASSERT_EQ(fusions.size(), 2u);
  EXPECT_TRUE(fusions[0].rms);
  EXPECT_EQ(fusions[0].eps, 1e-5);
  EXPECT_THAT(InputsOf(fusions[0]), ElementsAre(0, 1, 6));
  EXPECT_EQ(fusions[0].result, 8);
}

TEST(FusionsTest, AGeluBehindALinearLayerIsOneChainWithIt) {
  Graph graph;
  graph.nodes = {{.op = "aten::linear",
                  .arguments = {{"input", Ref(0)}, {"weight", Ref(1)}, {"bias", Ref(2)}},
                  .outputs = {3}},
                 {.op = "aten::gelu",
                  .arguments = {{"self", Ref(3)}, {"approximate", {std::string("tanh")}}},
                  .outputs = {4}}};
  const std::vector<Fusion> fusions = FindFusions(graph);
  ASSERT_EQ(fusions.size(), 1u);
  EXPECT_EQ(fusions[0].kind, FusionKind::kGelu);
  EXPECT_THAT(InputsOf(fusions[0]), ElementsAre(0, 1, 2));
  graph.nodes[1].arguments[1].second = {std::string("none")};
  EXPECT_TRUE(FindFusions(graph).empty()) << "an epilogue has tanh";
}

// On a CPU, in float32: values and all gradients against float64.
TEST(FusedCallTest, ModulationsAndGatesOnACpuAreTheFormulas) {
  at::manual_seed(3);
  const auto random = [](at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); };
  const at::Tensor x = random({3, 5, 64});
  std::vector<at::Tensor> values = {x};
  for (int i = 0; i < 4; ++i) values.push_back(random({3, 1, 64}));
  values.push_back(random({3, 5, 64}));
  const TensorAt at = [&](Slot slot) {
    return slot == kNoSlot ? at::Tensor() : values[Index(slot)];
  };
  const auto norm = RunFused({.kind = FusionKind::kNorm,
                              .x = 0,
                              .by = {{.scale = 1, .shift = 2}, {.scale = 3, .shift = 4}},
                              .eps = 1e-6},
                             at);
  const auto gate = RunFused({.kind = FusionKind::kGate, .x = 0, .a = 1, .b = 5}, at);
  ASSERT_EQ(norm.size(), 2u);
  ASSERT_EQ(gate.size(), 1u);
  const auto exact = [&](size_t i) { return values[i].to(at::kDouble); };
  const at::Tensor normal = at::layer_norm(exact(0), {64}, {}, {}, 1e-6);
  const std::vector<std::pair<at::Tensor, at::Tensor>> both = {
      {norm[0], normal * (exact(1) + 1) + exact(2)},
      {norm[1], normal * (exact(3) + 1) + exact(4)},
      {gate[0], exact(0) + exact(1) * exact(5)}};
  for (const auto& [ours, wanted] : both) {
    EXPECT_LT((ours - wanted).abs().max().item<double>(), 1e-5);
    const at::Tensor d = at::randn(ours.sizes());
    const auto gradients = [&](const at::Tensor& of) {
      return torch::autograd::grad({of}, values, {d.to(of.scalar_type())}, true, false, true);
    };
    const auto found = gradients(ours), expected = gradients(wanted);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(found[i].defined(), expected[i].defined());
      if (!found[i].defined()) continue;
      EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(), 1e-4) << i;
    }
  }
}

TEST(FusionsTest, AGeluBeforeAJoinIsOneChainWithIt) {
  Graph graph;
  graph.nodes = {{.op = "aten::gelu", .arguments = {{"self", Ref(0)}}, .outputs = {2}},
                 {.op = "aten::cat",
                  .arguments = {{"tensors", {Value::List{Ref(1), Ref(2)}}}, {"dim", {int64_t{2}}}},
                  .outputs = {3}}};
  const std::vector<Fusion> fusions = FindFusions(graph);
  ASSERT_EQ(fusions.size(), 1u);
  EXPECT_EQ(fusions[0].kind, FusionKind::kJoin);
  EXPECT_THAT(InputsOf(fusions[0]), ElementsAre(1, 0));
  EXPECT_FALSE(fusions[0].tanh);
  graph.outputs = {{.name = "v", .slot = 2}};
  EXPECT_TRUE(FindFusions(graph).empty()) << "the GELU is read elsewhere";
}

TEST(FusionsTest, WhatDependsOnSizesAloneIsNone) {
  Graph graph = ModulatedGraph();
  graph.constants = {{.slot = 0, .tensor = at::ones({1, 2, 8})},
                     {.slot = 1, .tensor = at::ones({8})},
                     {.slot = 2, .tensor = at::ones({8})}};
  std::erase_if(graph.inputs, [](const GraphInput& input) { return input.slot != 3; });
  const auto program = Compile(graph);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->fusions.size(), 1u) << "the norm is made once";
}

TEST(OperandsTest, ProductsAloneReadThem) {
  const auto operand = [](const std::function<void(Graph&)>& change) {
    Graph graph = ModulatedGraph();
    change(graph);
    const auto program = Compile(graph);
    EXPECT_TRUE(program.ok()) << program.status();
    return (*program)->operands[8];
  };
  EXPECT_TRUE(operand([](Graph&) {}));
  EXPECT_FALSE(operand([](Graph& graph) { graph.outputs.push_back({.name = "w", .slot = 8}); }))
      << "a result";
  EXPECT_FALSE(operand([](Graph& graph) { graph.nodes[8].arguments[0].second = Ref(8); }))
      << "a sum reads it, too";
  EXPECT_FALSE(operand([](Graph& graph) { graph.parameters[0].float32 = true; }))
      << "an exact product";
  EXPECT_FALSE(operand([](Graph& graph) { graph.nodes[5].autocast = false; }));
}

TEST(OperandsTest, AreRoundedOnceWithTheSameResults) {
  at::manual_seed(2);
  const at::Tensor scale = at::randn({2, 1, 8}), shift = at::randn({2, 1, 8}),
                   gate = at::randn({2, 1, 8});
  const at::Tensor x = at::randn({2, 3, 8}).requires_grad_(), w = at::randn({8, 8});
  const Interpreter interpreter(*Compile(ModulatedGraph()), {{"out.weight", w}},
                                {{"out", {.weight = w}}}, at::kCPU, {.compute = at::kBFloat16});
  const at::Tensor v = interpreter.Run({x, scale, shift, gate})[0];
  const AutocastScope autocast(at::kCPU, at::kBFloat16);
  const at::Tensor m = at::layer_norm(x, {8}, {}, {}, 1e-6) * (scale + 1) + at::silu(shift);
  const at::Tensor wanted = x + Linear{.weight = w}(m).to(at::kFloat) * gate;
  EXPECT_TRUE(v.equal(wanted));
  EXPECT_EQ(v.scalar_type(), at::kFloat);
}

TEST(FusedCallTest, ResultsAgreeWithinTheBoundOfTheirTypes) {
  const at::Tensor plain = at::tensor({1.0, -4.0, 2.0}).to(at::kFloat);
  const auto agree = [&](double by, at::ScalarType shortest) {
    return Agree(plain + by, plain, shortest, /*operand=*/false);
  };
  EXPECT_TRUE(agree(0, at::kFloat));
  EXPECT_TRUE(agree(4.0 / (1 << 17), at::kFloat));
  EXPECT_FALSE(agree(4.0 / (1 << 15), at::kFloat));
  EXPECT_TRUE(agree(4.0 / (1 << 7), at::kBFloat16));
  EXPECT_FALSE(agree(4.0 / (1 << 5), at::kBFloat16));
  EXPECT_FALSE(agree(std::nan(""), at::kBFloat16));
  EXPECT_FALSE(Agree(plain.to(at::kBFloat16), plain, at::kFloat, false)) << "another type";
  EXPECT_TRUE(Agree(plain.to(at::kBFloat16), plain, at::kFloat, true));
  EXPECT_FALSE(Agree(plain.unsqueeze(0), plain, at::kFloat, true)) << "another shape";
}

TEST(FusedCallTest, IsJudgedOnceForASignature) {
  FusionVerdicts verdicts;
  int judged = 0;
  const auto fits = [&](size_t fusion, const std::vector<int64_t>& signature, bool verdict) {
    return verdicts.Fits(fusion, signature, [&] {
      ++judged;
      return verdict;
    });
  };
  EXPECT_TRUE(fits(1, {3, 4}, true));
  EXPECT_TRUE(fits(1, {3, 4}, false)) << "it is known";
  EXPECT_FALSE(fits(1, {3, 5}, false));
  EXPECT_FALSE(fits(1, {3, 5}, true));
  EXPECT_TRUE(fits(2, {3, 5}, true)) << "another fusion";
  EXPECT_EQ(judged, 3);
}

TEST(FusedCallTest, AJudgementThatEndsInAnErrorIsMadeAgain) {
  FusionVerdicts verdicts;
  const auto fails = []() -> bool { throw std::runtime_error("out of memory"); };
  EXPECT_THROW((void)verdicts.Fits(1, {3}, fails), std::runtime_error);
  EXPECT_TRUE(verdicts.Fits(1, {3}, [] { return true; }));
}

TEST(FusedCallTest, RowsAreNoPartOfASignature) {
  const Fusion fusion{.x = 0, .by = {{.scale = 1}}};
  const auto of = [&](const at::Tensor& x, const at::Tensor& scale) {
    return SignatureOf(fusion, [&](Slot slot) { return slot == 0 ? x : scale; });
  };
  const at::Tensor scale = at::ones({1, 8});
  EXPECT_EQ(of(at::ones({2, 3, 8}), scale), of(at::ones({5, 3, 8}), scale));
  EXPECT_NE(of(at::ones({2, 3, 8}), scale), of(at::ones({2, 4, 8}), scale));
  EXPECT_NE(of(at::ones({2, 3, 8}), scale), of(at::ones({2, 3, 8}).to(at::kBFloat16), scale));
}

}  // namespace
}  // namespace oxbow::model::exported
