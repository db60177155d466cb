#include "core/rl/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace oxbow::rl
