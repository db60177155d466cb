// SPDX-License-Identifier: Apache-2.0
#include "core/rl/adamw.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/forked_ranks.h"

namespace oxbow::rl {
namespace {

// Three steps of torch.optim.AdamW on the same numbers, in float64.
TEST(AdamWTest, EqualsTorch) {
  at::Tensor flat = at::tensor({.5, -1., 2.}, at::kDouble);
  AdamW optimizer({.learning_rate = .01, .weight_decay = .1}, flat);
  for (const double k : {1., 2., 3.})
    optimizer.Step(flat, at::tensor({.3 * k, -.2 / k, 1e-3 * k * k}, at::kDouble));
  const at::Tensor want =
      at::tensor({0.46929930950474963, -0.9689789308613017, 1.9665369552764989}, at::kDouble);
  EXPECT_LT((flat - want).abs().max().item<double>(), 1e-15);
}

// With a constant gradient and no decay every update is the learning rate, so the warm-up shows.
TEST(AdamWTest, WarmUpRisesLinearlyToTheFullRate) {
  at::Tensor flat = at::zeros({1}, at::kDouble);
  AdamW optimizer({.learning_rate = 1, .epsilon = 0, .weight_decay = 0, .warmup_updates = 4}, flat);
  double before = 0;
  for (const double rate : {.25, .5, .75, 1., 1.}) {
    optimizer.Step(flat, at::ones({1}, at::kDouble));
    EXPECT_NEAR(before - flat.item<double>(), rate, 1e-12);
    before = flat.item<double>();
  }
}

TEST(GradNormTest, ScalesOnlyWhatIsTooLong) {
  at::Tensor grad = at::tensor({3., 4.}, at::kDouble);
  EXPECT_DOUBLE_EQ(ClipGradNorm(grad, 10), 5);
  EXPECT_DOUBLE_EQ(grad[1].item<double>(), 4);
  EXPECT_DOUBLE_EQ(ClipGradNorm(grad, 1), 5);
  EXPECT_NEAR(grad.norm().item<double>(), 1, 1e-6);
}

// Promise: Gradients in pieces train the same network.
TEST(GradNormTest, OfPiecesHasTheSameBitsHoweverTheyAreCut) {
  const at::Tensor x = (at::arange(700'001, at::kFloat) * 12.9898).sin() * 3;
  std::vector<double> norms;
  for (const int64_t piece : {700'001, 262'144, 100'000, 4097}) {
    NormOfPieces norm;
    for (int64_t begin = 0; begin < x.numel(); begin += piece) {
      norm.Add(x.narrow(0, begin, std::min(piece, x.numel() - begin)));
    }
    norms.push_back(norm.Norm());
  }
  EXPECT_THAT(norms, ::testing::Each(norms[0]));
  EXPECT_NEAR(norms[0], x.to(at::kDouble).norm().item<double>(), 1e-12 * norms[0]);
}

TEST(EmaTest, DecayStartsShortAndIsLimited) {
  EXPECT_DOUBLE_EQ(EmaDecay(1, .9), 2. / 11);
  EXPECT_DOUBLE_EQ(EmaDecay(1000, .9), .9);
  at::Tensor average = at::zeros({2}, at::kDouble);
  UpdateEma(average, at::ones({2}, at::kDouble), .75);
  EXPECT_DOUBLE_EQ(average[0].item<double>(), .25);
}

TEST(RateScheduleTest, FallsFromOneToItsShareAndStays) {
  for (const RateShape shape : {RateShape::kLinear, RateShape::kCosine}) {
    const RateSchedule schedule{.shape = shape, .steps = 40, .to = .2};
    EXPECT_EQ(RateFactorAt(schedule, 0), 1);
    EXPECT_NEAR(RateFactorAt(schedule, 20), .6, 1e-15) << "both are half way down half way";
    EXPECT_EQ(RateFactorAt(schedule, 40), .2);
    EXPECT_EQ(RateFactorAt(schedule, 4000), .2);
    for (uint64_t step = 0; step < 40; ++step) {
      EXPECT_GT(RateFactorAt(schedule, step), RateFactorAt(schedule, step + 1));
    }
  }
  EXPECT_LT(RateFactorAt({.shape = RateShape::kLinear, .steps = 40, .to = 0}, 10),
            RateFactorAt({.shape = RateShape::kCosine, .steps = 40, .to = 0}, 10));
  EXPECT_EQ(RateFactorAt({.shape = RateShape::kConstant, .steps = 40}, 30), 1);
}

using parallel::Ranks;
using parallel::RunRanks;
using ::testing::Each;

const AdamWOptions kOptions{.learning_rate = .01, .weight_decay = .1, .warmup_updates = 2};

// Irregular numbers from -1 to 1.
at::Tensor Wave(int64_t length, double seed) {
  return (at::arange(length, at::kFloat) * 12.9898 + 78.233 * seed).sin();
}

// Promise: Where moments are changes no bit.
TEST(AdamWTest, MomentsInHostMemoryComeBackFromACopyAndGiveTheSameBits) {
  at::Tensor one = Wave(100'000, 0), two = one.clone();
  AdamW with(kOptions, one), host(kOptions, two, MomentPlace::kHost);
  const auto step = [&](int update) {
    const at::Tensor grad = Wave(100'000, update);
    const double change = with.Step(one, grad).item<double>();
    EXPECT_EQ(host.Step(two, grad).item<double>(), change);
    EXPECT_TRUE(at::equal(one, two)) << update;
  };
  for (const int update : {1, 2}) step(update);
  const at::Tensor before = one.clone();
  const HostMoments moments = with.CopyToHost(), of_host = host.CopyToHost();
  for (const int update : {3, 4}) step(update);
  const at::Tensor after = one.clone();
  for (const int round : {1, 2}) {  // A copy can be put back more than once.
    with.PutBack(moments);
    host.PutBack(of_host);
    EXPECT_EQ(host.updates(), 2) << round;
    one.copy_(before);
    two.copy_(before);
    for (const int update : {3, 4}) step(update);
    EXPECT_TRUE(at::equal(one, after));
  }
}

class ShardedAdamWTest : public ::testing::TestWithParam<int> {};

// Lengths that fit no rank, leave ranks without elements, and end in every kind of remainder.
// Promise: Where moments are changes no bit. With `offload_optimizer` and
// `offload_average` weights, moments, average and checkpoints are, bit for bit, those of a
// run without. A failed step is undone, too.
TEST_P(ShardedAdamWTest, GivesTheBitsOfTheWholeForEqualGradients) {
  const auto body = [](Ranks& ranks) {
    for (const int64_t length : {1, 63, 64, 100, 257, 1000, 40961}) {
      at::Tensor whole = Wave(length, 0);
      at::Tensor sharded = whole.clone();
      at::Tensor reduced = whole.clone();
      AdamW plain(kOptions, whole);
      ShardedAdamW optimizer(kOptions, sharded, ranks);
      ShardedAdamW given(kOptions, reduced, ranks, MomentPlace::kHost);
      at::Tensor in_place = whole.clone();
      ShardedAdamW of_pieces(kOptions, in_place, ranks);
      for (int update = 1; update <= 4; ++update) {
        // Powers of two, so that the sum over ranks is exact in any order.
        const at::Tensor grad = Wave(length, update);
        const double norm = grad.to(at::kDouble).norm().item<double>();
        const at::Tensor own = grad.narrow(0, of_pieces.begin(), of_pieces.own_length()).clone();
        plain.Step(whole, grad, 1. / update);
        const auto got = optimizer.Reduce(grad / ranks.size(), /*norm_max=*/0);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_NEAR(*got, norm, 1e-12 * norm);
        ASSERT_TRUE(optimizer.Step(sharded, 1. / update).ok());
        EXPECT_TRUE(at::equal(sharded, whole)) << length << " elements, update " << update;
        given.TakeReduced(grad);
        ASSERT_TRUE(given.Step(reduced, 1. / update).ok());
        EXPECT_TRUE(at::equal(reduced, whole)) << length << " elements, update " << update;
        const auto of_all = of_pieces.TakePiece(own, /*norm_max=*/0);
        ASSERT_TRUE(of_all.ok()) << of_all.status();
        EXPECT_NEAR(*of_all, norm, 1e-12 * norm);
        const at::Tensor before = in_place.clone();
        const auto change = of_pieces.Step(in_place, 1. / update);
        ASSERT_TRUE(change.ok());
        EXPECT_TRUE(at::equal(in_place, whole)) << length << " elements, update " << update;
        const double moved = (in_place - before).to(at::kDouble).square().sum().item<double>();
        EXPECT_NEAR(change->item<double>(), moved, 1e-5 * moved);
      }
      const auto state = optimizer.Gather();
      ASSERT_TRUE(state.ok());
      const auto on_host = given.Gather();
      ASSERT_TRUE(on_host.ok());
      for (const AdamWState& got : {*state, *on_host}) {
        EXPECT_TRUE(at::equal(got.first, plain.State().first));
        EXPECT_TRUE(at::equal(got.second, plain.State().second));
        EXPECT_EQ(got.updates, 4);
      }
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

TEST_P(ShardedAdamWTest, LimitsTheNormOfTheSum) {
  const auto body = [](Ranks& ranks) {
    at::Tensor whole = Wave(1000, 0);
    at::Tensor sharded = whole.clone();
    AdamW plain(kOptions, whole);
    ShardedAdamW optimizer(kOptions, sharded, ranks);
    at::Tensor grad = 100 * Wave(1000, 1);
    const auto norm = optimizer.Reduce(grad / ranks.size(), 1);
    ASSERT_TRUE(norm.ok());
    ASSERT_TRUE(optimizer.Step(sharded).ok());
    EXPECT_NEAR(ClipGradNorm(grad, 1) / *norm, 1, 1e-6);
    plain.Step(whole, grad);
    EXPECT_LT((sharded - whole).abs().max().item<double>(), 1e-6);
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

// Each number of ranks goes on from what one rank saved, to the same end; given whole or in parts.
TEST_P(ShardedAdamWTest, StateSavedByOneRankIsGoneOnWithByAny) {
  const auto body = [](Ranks& ranks) {
    const int64_t length = 333;
    at::Tensor whole = Wave(length, 0);
    AdamW plain(kOptions, whole);
    for (int update = 1; update <= 3; ++update) plain.Step(whole, Wave(length, update));
    const AdamWState saved = plain.State();
    at::Tensor next = whole.clone();
    plain.Step(next, Wave(length, 4));
    for (const MomentPlace place : {MomentPlace::kWithWeights, MomentPlace::kHost}) {
      for (const int64_t part : {length, int64_t{100}}) {
        at::Tensor sharded = whole.clone();
        ShardedAdamW optimizer(kOptions, sharded, ranks, place);
        for (int64_t begin = 0; begin < length; begin += part) {
          const int64_t count = std::min(part, length - begin);
          optimizer.RestorePart(begin, saved.first.narrow(0, begin, count),
                                saved.second.narrow(0, begin, count));
        }
        optimizer.SetUpdates(saved.updates);
        if (part == length) optimizer.Restore(saved);
        EXPECT_EQ(optimizer.learning_rate(), AdamW(kOptions, whole).learning_rate() * 2);
        ASSERT_TRUE(optimizer.Reduce(Wave(length, 4) / ranks.size(), 0).ok());
        ASSERT_TRUE(optimizer.Step(sharded).ok());
        EXPECT_TRUE(at::equal(sharded, next));
      }
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShardedAdamWTest, ::testing::Values(1, 2, 4));

}  // namespace

}  // namespace oxbow::rl
