// SPDX-License-Identifier: Apache-2.0
// Buckets against the plain all-reduce of the flat gradient, on a chain of layers whose gradients
// come in the reverse order of their names.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "core/parallel/leaf_buckets.h"
#include "tests/testing/forked_ranks.h"

namespace oxbow::parallel {
namespace {

using ::testing::Each;

// x -> tanh(x W_0) -> ... ; all weights in one flat tensor, as a policy's.
struct Chain {
  static constexpr int kLayers = 6;
  static constexpr int64_t kWidth = 16;

  Chain() {
    flat = (at::arange(kLayers * kWidth * kWidth, at::kFloat) * 12.9898).sin() * .4;
    grad = at::zeros_like(flat);
    for (int i = 0; i < kLayers; ++i) {
      const auto cut = [&](const at::Tensor& t) {
        return t.narrow(0, i * kWidth * kWidth, kWidth * kWidth).view({kWidth, kWidth});
      };
      at::Tensor leaf = cut(flat).detach();
      leaf.requires_grad_(true);
      leaf.mutable_grad() = cut(grad);
      leaves.push_back(leaf);
    }
  }

  at::Tensor Loss(int input) const {
    at::Tensor x = (at::arange(kWidth, at::kFloat) * (input + 1)).cos().view({1, kWidth});
    for (const at::Tensor& leaf : leaves) x = x.mm(leaf).tanh();
    return x.sum();
  }

  at::Tensor flat;
  at::Tensor grad;
  std::vector<at::Tensor> leaves;
};

// One layer is 1 KiB, so this makes three buckets of two layers.
constexpr int64_t kTwoLayers = 2 * Chain::kWidth * Chain::kWidth * 4;

class GradientBucketsTest : public ::testing::TestWithParam<int> {};

TEST_P(GradientBucketsTest, EqualThePlainAllReduce) {
  const auto body = [](Ranks& ranks) {
    Chain plain;
    Chain bucketed;
    GradientBuckets buckets(ranks, bucketed.grad, bucketed.leaves, kTwoLayers);
    EXPECT_EQ(buckets.count(), 3);
    for (int update = 0; update < 3; ++update) {
      plain.grad.zero_();
      bucketed.grad.zero_();
      // Two passes per update: the first only accumulates.
      const int input = 10 * update + ranks.rank();
      plain.Loss(input).backward();
      plain.Loss(input + 5).backward();
      ASSERT_TRUE(ranks.AllReduceSum(plain.grad).ok());

      bucketed.Loss(input).backward();
      buckets.Arm();
      bucketed.Loss(input + 5).backward();
      ASSERT_TRUE(buckets.Finish().ok());
      EXPECT_EQ(buckets.started_in_backward(), update == 0 ? 0 : 3) << "the first finds the order";
      EXPECT_LT((bucketed.grad - plain.grad).abs().max().item<double>(),
                1e-6 * plain.grad.abs().max().item<double>());
      if (ranks.size() == 1) {
        EXPECT_TRUE(at::equal(bucketed.grad, plain.grad));
      }
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

// The last rank has nothing to compute: it joins the sums all the same, also in the first update.
TEST_P(GradientBucketsTest, RankWithoutWorkAddsZeros) {
  const auto body = [](Ranks& ranks) {
    const int idle = ranks.size() - 1;
    for (const bool idle_first : {true, false}) {
      Chain chain;
      GradientBuckets buckets(ranks, chain.grad, chain.leaves, kTwoLayers);
      for (int update = 0; update < 2; ++update) {
        chain.grad.zero_();
        at::Tensor want = at::zeros_like(chain.grad);
        const bool works = ranks.rank() != (idle_first ? 0 : idle);
        buckets.Arm();
        if (works) chain.Loss(7).backward();
        ASSERT_TRUE(buckets.Finish().ok());
        // The rank that had gradients first has told the order.
        EXPECT_EQ(buckets.started_in_backward(), works && update == 1 ? 3 : 0);
        Chain alone;
        alone.Loss(7).backward();
        want = alone.grad * (ranks.size() - 1);
        EXPECT_LE((chain.grad - want).abs().max().item<double>(),
                  1e-6 * want.abs().max().item<double>());
      }
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

INSTANTIATE_TEST_SUITE_P(Sizes, GradientBucketsTest, ::testing::Values(1, 2, 4));

TEST(GradientBucketsFailureTest, DeadRankIsAnErrorOfFinish) {
  const auto body = [](Ranks& ranks) {
    Chain chain;
    GradientBuckets buckets(ranks, chain.grad, chain.leaves, kTwoLayers);
    buckets.Arm();
    chain.Loss(1).backward();
    ASSERT_TRUE(buckets.Finish().ok());
    if (ranks.rank() == 1) raise(SIGKILL);
    buckets.Arm();
    chain.Loss(1).backward();
    EXPECT_FALSE(buckets.Finish().ok());
  };
  EXPECT_THAT(RunRanks(2, {.operation_timeout = absl::Seconds(1)}, body),
              ::testing::ElementsAre(0, -SIGKILL));
}

}  // namespace
}  // namespace oxbow::parallel
