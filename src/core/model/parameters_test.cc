// SPDX-License-Identifier: Apache-2.0
#include "core/model/parameters.h"

#include <ATen/ATen.h>

#include "gtest/gtest.h"

namespace oxbow::model {
namespace {

NamedTensors Sample() {
  return {{"b", at::arange(6, at::kFloat).view({2, 3})},
          {"a", at::full({4}, 7.0f)},
          {"c", at::full({2}, 2.0, at::kDouble)}};
}

TEST(ParameterSetTest, ViewsShareTheFlatTensorInNameOrder) {
  ParameterSet set(Sample(), /*trainable=*/false);
  EXPECT_EQ(set.numel(), 12);
  EXPECT_EQ(set.flat()[0].item<float>(), 7);
  EXPECT_EQ(set.flat()[5].item<float>(), 1);
  set.flat().add_(1);
  EXPECT_TRUE(at::equal(set.Get("b"), at::arange(6, at::kFloat).view({2, 3}) + 1));
  EXPECT_EQ(set.Get("c").scalar_type(), at::kFloat);
  EXPECT_FALSE(set.Has("d"));
}

TEST(ParameterSetTest, BackwardAccumulatesInTheFlatGradient) {
  ParameterSet set(Sample(), /*trainable=*/true);
  for (int round = 1; round <= 2; ++round) {
    (set.Get("b").pow(2).sum() + 3 * set.Get("a").sum()).backward();
    const at::Tensor expected =
        at::cat({at::full({4}, 3.0f), 2 * at::arange(6, at::kFloat), at::zeros({2})}) * round;
    EXPECT_TRUE(at::equal(set.flat_grad(), expected)) << set.flat_grad();
  }
  set.ZeroGrad();
  EXPECT_EQ(set.Get("b").grad().abs().sum().item<float>(), 0);
}

TEST(ParameterSetTest, CopyFromTakesTheOtherSetsValues) {
  ParameterSet set(Sample(), /*trainable=*/true);
  ParameterSet other(Sample(), /*trainable=*/false);
  other.flat().mul_(-1);
  set.CopyFrom(other);
  EXPECT_TRUE(at::equal(set.Get("b"), other.Get("b")));
  EXPECT_TRUE(set.Get("b").is_leaf() && set.Get("b").requires_grad());
}

}  // namespace
}  // namespace oxbow::model
