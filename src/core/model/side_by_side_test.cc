// SPDX-License-Identifier: Apache-2.0
// Weights of one input have one memory, and are themselves.
#include "core/model/side_by_side.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/adapted_linears.h"
#include "tests/testing/graph_architecture.h"

namespace oxbow::model {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

TEST(SideBySideTest, TensorsOfAGroupFollowOneAnother) {
  const NamedTensors places = PlacedSideBySide(
      {{"q.weight", "k.weight"}, {"q.bias", "k.bias"}},
      {{"k.bias", {2}}, {"k.weight", {2, 5}}, {"q.bias", {3}}, {"q.weight", {3, 5}}}, at::kFloat);
  ASSERT_EQ(places.size(), 4u);
  const at::Tensor q = places.at("q.weight"), k = places.at("k.weight");
  EXPECT_EQ(q.sizes(), at::IntArrayRef({3, 5}));
  EXPECT_TRUE(LieSideBySide({q, k}));
  EXPECT_TRUE(LieSideBySide({places.at("q.bias"), places.at("k.bias")}));
  EXPECT_FALSE(LieSideBySide({k, q}));
  EXPECT_FALSE(LieSideBySide({q, places.at("q.bias")}));
  EXPECT_FALSE(LieSideBySide({q, q}));
  EXPECT_FALSE(LieSideBySide({q, k.clone()}));
  EXPECT_FALSE(LieSideBySide(q)) << "one alone";
  EXPECT_EQ(q.storage().nbytes(), 25 * sizeof(float)) << "both, and nothing else";
  at::Tensor(q).fill_(1);
  at::Tensor(k).fill_(2);
  const at::Tensor one = AsOne({q, k});
  EXPECT_TRUE(at::equal(one, at::cat({q, k})));
  EXPECT_TRUE(one.is_alias_of(q)) << "no copy";
}

TEST(SideBySideTest, LayersThatTrainOrDifferGoAlone) {
  const NamedTensors places = PlacedSideBySide(
      {{"a", "b"}, {"a.bias", "b.bias"}},
      {{"a", {3, 5}}, {"b", {2, 5}}, {"a.bias", {3}}, {"b.bias", {2}}}, at::kFloat);
  const Linear a{.weight = places.at("a")}, b{.weight = places.at("b")};
  const auto with = [](Linear linear, const auto& change) {
    change(linear);
    return linear;
  };
  EXPECT_TRUE(GoSideBySide({a, b}));
  const Linear a_biased = with(a, [&](Linear& of) { of.bias = places.at("a.bias"); });
  const Linear b_biased = with(b, [&](Linear& of) { of.bias = places.at("b.bias"); });
  EXPECT_TRUE(GoSideBySide({a_biased, b_biased}));
  EXPECT_FALSE(GoSideBySide({a_biased, b}));
  EXPECT_FALSE(GoSideBySide({a, b_biased}));
  const auto apart = [&](Linear& of) { of.bias = places.at("b.bias").clone(); };
  EXPECT_FALSE(GoSideBySide({a_biased, with(b, apart)}));
  const auto int8 = [](Linear& of) { of.scale = at::ones({2, 1}); };
  EXPECT_FALSE(GoSideBySide({a, with(b, int8)}));
  const auto trains = [](Linear& of) { of.weight = of.weight.detach().requires_grad_(); };
  EXPECT_FALSE(GoSideBySide({a, with(b, trains)}));
  const auto adapted = [](int64_t rank, double scale) {
    return [=](Linear& of) {
      of.lora_a = at::randn({rank, 5});
      of.lora_b = at::randn({of.weight.size(0), rank});
      of.lora_scale = scale;
    };
  };
  EXPECT_TRUE(GoSideBySide({a, with(b, adapted(4, 2))}));
  EXPECT_TRUE(GoSideBySide({with(a, adapted(4, 2)), with(b, adapted(4, 2))}));
  EXPECT_FALSE(GoSideBySide({with(a, adapted(3, 2)), with(b, adapted(4, 2))}));
  EXPECT_FALSE(GoSideBySide({with(a, adapted(4, 1)), with(b, adapted(4, 2))}));
  EXPECT_TRUE(ApplyFrozen(at::randn({4, 5}), {a, b}).empty()) << "a CPU gains nothing";
}

TEST(SideBySideTest, PublishedNetworksSayWhatBelongsTogether) {
  const auto flux =
      testing::GraphArchitecture("models/graphs/FluxTransformer2DModel-flux.1-dev.json.gz");
  const std::string block = "single_transformer_blocks.37.";
  const auto groups = flux->side_by_side();
  EXPECT_THAT(groups,
              Contains(ElementsAre(block + "proj_mlp.weight", block + "attn.to_q.weight",
                                   block + "attn.to_k.weight", block + "attn.to_v.weight")));
  EXPECT_THAT(groups, Contains(ElementsAre(block + "proj_mlp.bias", block + "attn.to_q.bias",
                                           block + "attn.to_k.bias", block + "attn.to_v.bias")));
  EXPECT_EQ(groups.size(), 2u * (38 + 3 * 19)) << "conditions of both streams, two of q, k, v";
  std::set<std::string> known;
  for (const auto& group : groups) {
    for (const std::string& name : group) EXPECT_TRUE(known.insert(name).second) << name;
  }
  const auto sd35 = testing::GraphArchitecture(testing::kSd35MediumGraph);
  EXPECT_THAT(sd35->side_by_side(),
              Contains(ElementsAre("transformer_blocks.3.attn2.to_q.weight",
                                   "transformer_blocks.3.attn2.to_k.weight",
                                   "transformer_blocks.3.attn2.to_v.weight")));
}

}  // namespace
}  // namespace oxbow::model
