// SPDX-License-Identifier: Apache-2.0
// Both spellings of a turn are found behind attention, with the norms and joins before them; a
// chain that something else reads, or that turns another way, is left alone.
#include "core/model/exported_graph/fused_heads.h"

#include <functional>
#include <string>

#include "core/model/exported_graph/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::model::exported {
namespace {

using ::testing::ElementsAre;

Value At(Slot slot) { return {SlotRef{slot}}; }
Value Sizes(std::initializer_list<int64_t> sizes) {
  Value::List list;
  for (const int64_t size : sizes) list.push_back({size});
  return {list};
}

// Builds nodes one after the other; a value is the slot of the node that makes it.
class Nodes {
 public:
  Slot operator()(std::string op, std::vector<std::pair<std::string, Value>> arguments,
                  int outputs = 1) {
    GraphNode node{.op = "aten::" + op, .arguments = std::move(arguments)};
    for (int i = 0; i < outputs; ++i) node.outputs.push_back(next_++);
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().outputs[0];
  }
  Slot Normal(Slot x, Slot weight) {
    return (*this)("rms_norm", {{"input", At(x)}, {"weight", At(weight)}, {"eps", {1e-6}}});
  }
  Slot Exact(Slot x) { return (*this)("to", {{"self", At(x)}, {"dtype", {at::kFloat}}}); }
  Slot Pairs(Slot x) { return (*this)("unflatten", {{"self", At(x)}, {"sizes", Sizes({-1, 2})}}); }
  Slot Product(Slot a, Slot b) { return (*this)("mul", {{"self", At(a)}, {"other", At(b)}}); }
  Slot Flat(Slot x) { return (*this)("flatten", {{"self", At(x)}}); }
  Slot Joined(Slot a, Slot b) {
    return (*this)("cat", {{"tensors", {Value::List{At(a), At(b)}}}, {"dim", {int64_t{1}}}});
  }
  // x cos + crossed sin, spelled out.
  Slot Turned(Slot x, Slot cos, Slot sin) {
    const Slot a = (*this)("unbind", {{"self", At(Pairs(x))}, {"dim", {int64_t{-1}}}}, 2);
    const Slot minus = (*this)("neg", {{"self", At(a + 1)}});
    const Slot crossed = Flat(
        (*this)("stack", {{"tensors", {Value::List{At(minus), At(a)}}}, {"dim", {int64_t{-1}}}}));
    const Slot straight = Product(Exact(x), cos);
    const Slot across = Product(sin, Exact(crossed));
    return (*this)("add", {{"self", At(across)}, {"other", At(straight)}});
  }
  Slot TurnedComplex(Slot x, Slot angles) {
    const Slot pairs = (*this)("view_as_complex", {{"self", At(Pairs(Exact(x)))}});
    return Flat((*this)("view_as_real", {{"self", At(Product(pairs, angles))}}));
  }
  // Attention of a value as queries and as keys.
  void Attend(Slot q) {
    const Slot moved = (*this)("permute", {{"self", At(q)}, {"dims", Sizes({0, 2, 1, 3})}});
    (*this)("scaled_dot_product_attention",
            {{"query", At(moved)}, {"key", At(1)}, {"value", At(1)}});
  }
  Graph& graph() { return graph_; }

 private:
  Graph graph_;
  Slot next_ = 10;  // Those before are given.
};

TEST(FusedHeadsTest, NormsJoinedAndThenTurnedAreOneChain) {
  Nodes nodes;
  const Slot both = nodes.Joined(nodes.Normal(0, 5), nodes.Normal(1, 6));
  const Slot turned = nodes.Exact(nodes.Turned(both, 7, 8));
  nodes.Attend(turned);
  const std::vector<Chain> chains = FindHeads(nodes.graph());
  ASSERT_EQ(chains.size(), 1u);
  EXPECT_EQ(chains[0].nodes.size(), nodes.graph().nodes.size() - 2) << "all but attention's";
  EXPECT_EQ(chains[0].fusion.result, turned);
  EXPECT_THAT(InputsOf(chains[0].fusion), ElementsAre(0, 0, 5, 7, 8, 1, 6, 7, 8));
  for (const HeadSlots& part : chains[0].fusion.parts) {
    EXPECT_TRUE(part.norm && part.joint && !part.whole);
    EXPECT_EQ(part.eps, 1e-6);
  }
}

TEST(FusedHeadsTest, TokensNormalisedWholeAndTurnedAsComplexNumbersAreOneChain) {
  Nodes nodes;
  const Slot heads =
      nodes("unflatten",
            {{"self", At(nodes.Normal(0, 5))}, {"dim", {int64_t{2}}}, {"sizes", Sizes({3, -1})}});
  const Slot turned = nodes.TurnedComplex(heads, 7);
  nodes.Attend(nodes.Joined(turned, nodes.TurnedComplex(1, 8)));
  const std::vector<Chain> chains = FindHeads(nodes.graph());
  ASSERT_EQ(chains.size(), 1u);
  const std::vector<HeadSlots>& parts = chains[0].fusion.parts;
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(parts[0].norm && parts[0].whole && !parts[0].joint);
  EXPECT_THAT(parts[0].split, ElementsAre(3, -1));
  EXPECT_FALSE(parts[1].norm);
  EXPECT_THAT(InputsOf(chains[0].fusion), ElementsAre(0, 0, 5, 7, 1, 8));
}

TEST(FusedHeadsTest, WholeTokensMayTurnBeforeTheyAreHeads) {
  Nodes nodes;
  const Slot turned = nodes.Turned(nodes.Normal(0, 5), 7, 8);
  nodes.Attend(nodes("unflatten", {{"self", At(turned)}, {"sizes", Sizes({3, -1})}}));
  const std::vector<Chain> chains = FindHeads(nodes.graph());
  ASSERT_EQ(chains.size(), 1u);
  EXPECT_EQ(chains[0].fusion.result, turned);
  EXPECT_TRUE(chains[0].fusion.parts[0].split.empty());
}

// Stable Diffusion 3 normalises heads that it has transposed, and joins them along tokens.
TEST(FusedHeadsTest, HeadsThatWereTransposedBeforeTheirNormAreOneChain) {
  const auto chains_of = [](int64_t to) {
    Nodes nodes;
    const auto normal = [&](Slot x, Slot weight) {
      const Slot moved =
          nodes("transpose", {{"self", At(x)}, {"dim0", {int64_t{1}}}, {"dim1", {to}}});
      return nodes.Normal(nodes.Exact(moved), weight);
    };
    const Slot first = normal(0, 5), second = normal(2, 6);
    const Slot joined =
        nodes("cat", {{"tensors", {Value::List{At(first), At(second)}}}, {"dim", {int64_t{2}}}});
    nodes("scaled_dot_product_attention",
          {{"query", At(joined)}, {"key", At(1)}, {"value", At(1)}});
    return FindHeads(nodes.graph());
  };
  const std::vector<Chain> chains = chains_of(2);
  ASSERT_EQ(chains.size(), 1u);
  EXPECT_TRUE(chains[0].fusion.transposed);
  EXPECT_EQ(chains[0].nodes.size(), 7u);
  EXPECT_THAT(InputsOf(chains[0].fusion), ElementsAre(0, 0, 5, 2, 6));
  EXPECT_TRUE(chains_of(3).empty()) << "other sizes changed places";
}

TEST(FusedHeadsTest, WhatIsNotQuiteOneStays) {
  const auto chains_of = [](const std::function<void(Nodes&)>& make) {
    Nodes nodes;
    make(nodes);
    return FindHeads(nodes.graph()).size();
  };
  EXPECT_EQ(chains_of([](Nodes& nodes) { nodes.Attend(nodes.Joined(0, 1)); }), 0u)
      << "nothing is normalised or turned";
  EXPECT_EQ(chains_of([](Nodes& nodes) {
              const Slot normal = nodes.Normal(0, 5);
              nodes.Attend(nodes.Turned(normal, 7, 8));
              nodes("silu", {{"self", At(normal)}});
            }),
            0u)
      << "something else reads a value inside";
  EXPECT_EQ(chains_of([](Nodes& nodes) {
              nodes.Attend(nodes.Turned(0, 7, 8));
              auto& pair = std::get<Value::List>(nodes.graph().nodes[3].arguments[0].second.is);
              std::swap(pair[0], pair[1]);
            }),
            0u)
      << "a turn the other way";
}

}  // namespace
}  // namespace oxbow::model::exported
