// SPDX-License-Identifier: Apache-2.0
// Pieces of a sharded gradient against the all-reduce of a whole one.
#include "core/parallel/sharded_gradient.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <csignal>

#include "core/parallel/ranks.h"
#include "tests/testing/forked_ranks.h"

namespace oxbow::parallel {
namespace {

using ::testing::Each;

constexpr int kLayers = 7;
constexpr int64_t kWidth = 12;
constexpr int64_t kLayer = kWidth * kWidth;
constexpr int64_t kWeights = kLayers * kLayer;

// x -> tanh(x W_0) -> ... ; a layer more or less shows that leaves may be without a gradient.
struct ShardedChain {
  ShardedChain() {
    flat = (at::arange(kWeights, at::kFloat) * 12.9898).sin() * .4;
    for (int i = 0; i < kLayers; ++i) {
      at::Tensor leaf = flat.narrow(0, i * kLayer, kLayer).view({kWidth, kWidth}).detach();
      leaves.push_back(leaf.requires_grad_(true));
    }
  }

  at::Tensor Loss(int input, int layers = kLayers) const {
    at::Tensor x = (at::arange(kWidth, at::kFloat) * (input + 1)).cos().view({1, kWidth});
    for (int i = 0; i < layers; ++i) x = x.mm(leaves[static_cast<size_t>(i)]).tanh();
    return x.sum();
  }

  // The gradient of the sum of losses, for one rank alone.
  at::Tensor GradientOf(const std::vector<std::pair<int, int>>& inputs) const {
    at::Tensor sum = at::zeros({kWeights}, at::kFloat);
    for (const auto& [input, layers] : inputs) {
      ShardedChain chain;
      chain.Loss(input, layers).backward();
      for (int i = 0; i < layers; ++i) {
        sum.narrow(0, i * kLayer, kLayer)
            .add_(chain.leaves[static_cast<size_t>(i)].grad().view({-1}));
      }
    }
    return sum;
  }

  at::Tensor flat;
  std::vector<at::Tensor> leaves;
};

int64_t StrideOf(int ranks) { return (kWeights + ranks - 1) / ranks; }

void ExpectClose(const ShardedGradient& gradient, const at::Tensor& whole) {
  const at::Tensor want = whole.narrow(0, gradient.begin(), gradient.own().numel());
  EXPECT_LE((gradient.own() - want).abs().max().item<double>(),
            1e-6 * whole.abs().max().item<double>());
}

class ShardedGradientTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ShardedGradientTest, ::testing::Values(1, 2, 3, 5));

// In every update the ranks have other numbers of passes: a rank without work in a pass takes part
// in its sums. In the first one that is rank 0, which therefore cannot tell the order.
// Promise: Gradients in pieces train the same network. With `shard_gradients` no rank holds
// a whole gradient, and each pass is summed over ranks, also over ranks that have fewer passes or
// none. Deterministic runs with whole gradients and with pieces make the same bits for every number
// of ranks; others agree within the rounding of sums. A failed step is undone.
TEST_P(ShardedGradientTest, PiecesAreThoseOfTheWholeSum) {
  const auto body = [](Ranks& ranks) {
    for (const int64_t bucket_bytes : {4 * kWeights, 8 * kLayer, 4 * kLayer, int64_t{4}}) {
      ShardedChain chain;
      ShardedGradient gradient(ranks, chain.leaves, StrideOf(ranks.size()), bucket_bytes);
      for (int update = 0; update < 4; ++update) {
        gradient.Zero();
        std::vector<std::pair<int, int>> all;
        for (int pass = 0; pass < 3; ++pass) {
          gradient.Arm();
          for (int rank = 0; rank < ranks.size(); ++rank) {
            if (pass == 0 && rank == 0 && ranks.size() > 1) continue;
            if (pass == 2 && rank != update % ranks.size()) continue;
            const std::pair<int, int> input(10 * update + 3 * pass + rank,
                                            kLayers - (update + rank) % 3);
            all.push_back(input);
            if (rank == ranks.rank()) chain.Loss(input.first, input.second).backward();
          }
          ASSERT_TRUE(gradient.Finish().ok());
          for (const at::Tensor& leaf : chain.leaves) EXPECT_FALSE(leaf.grad().defined());
        }
        SCOPED_TRACE(::testing::Message() << bucket_bytes << " bytes, update " << update);
        ExpectClose(gradient, chain.GradientOf(all));
      }
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

TEST_P(ShardedGradientTest, APassWithoutGradientsAnywhereAddsNothing) {
  const auto body = [](Ranks& ranks) {
    ShardedChain chain;
    ShardedGradient gradient(ranks, chain.leaves, StrideOf(ranks.size()));
    for (int pass = 0; pass < 2; ++pass) {
      gradient.Arm();
      ASSERT_TRUE(gradient.Finish().ok());
    }
    EXPECT_EQ(gradient.own().abs().sum().item<double>(), 0);
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

// y = x, of a node that takes the leaf and has no gradient for it, as a recomputed block may.
struct Ignores : torch::autograd::Function<Ignores> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x,
                            const at::Tensor& /*leaf*/) {
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0], at::Tensor()};
  }
};

// Promise: Gradients in pieces train the same network.
TEST_P(ShardedGradientTest, ALeafThatABlockIgnoresAddsNothing) {
  const auto body = [](Ranks& ranks) {
    ShardedChain chain;
    ShardedGradient gradient(ranks, chain.leaves, StrideOf(ranks.size()), 8 * kLayer);
    for (int pass = 0; pass < 2; ++pass) {
      gradient.Zero();
      gradient.Arm();
      Ignores::apply(chain.Loss(3, kLayers - 1), chain.leaves.back()).backward();
      ASSERT_TRUE(gradient.Finish().ok());
      ExpectClose(gradient, chain.GradientOf({{3, kLayers - 1}}) * ranks.size());
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

TEST_P(ShardedGradientTest, OnTheHostItIsTheWholeGradientOfThisRank) {
  const auto body = [](Ranks& ranks) {
    ShardedChain chain;
    ShardedGradient gradient(ranks, chain.leaves, StrideOf(ranks.size()));
    at::Tensor flat = at::zeros({kWeights}, at::kFloat);
    for (const int input : {ranks.rank(), 9}) {
      gradient.ArmOnHost(flat);
      chain.Loss(input).backward();
      gradient.FinishOnHost();
    }
    EXPECT_TRUE(at::equal(flat, chain.GradientOf({{ranks.rank(), kLayers}, {9, kLayers}})));
    EXPECT_EQ(gradient.own().abs().sum().item<double>(), 0);
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

// Promise: Gradients in pieces train the same network.
TEST(ShardedGradientFailureTest, DeadRankIsAnErrorOfFinish) {
  const auto body = [](Ranks& ranks) {
    ShardedChain chain;
    ShardedGradient gradient(ranks, chain.leaves, StrideOf(ranks.size()), 4 * kLayer);
    gradient.Arm();
    chain.Loss(1).backward();
    ASSERT_TRUE(gradient.Finish().ok());
    if (ranks.rank() == 1) raise(SIGKILL);
    gradient.Arm();
    chain.Loss(1).backward();
    EXPECT_FALSE(gradient.Finish().ok());
  };
  EXPECT_THAT(RunRanks(2, {.operation_timeout = absl::Seconds(1)}, body),
              ::testing::ElementsAre(0, -SIGKILL));
}

}  // namespace
}  // namespace oxbow::parallel
