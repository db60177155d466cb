#include "core/pretrain/pretraining.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/flow/schedule.h"

namespace oxbow::task {
namespace {

std::vector<Digits> SomePrompts() { return {{4, 7, 3}, {0, 0, 9}, {8, 1, 2}}; }

std::unique_ptr<Pretraining> Start(uint64_t seed, int64_t steps) {
  PretrainingOptions options{.batch = {.seed = seed, .size = 16}, .steps = steps};
  options.warmup_steps = 5;
  auto run = Pretraining::Create(options, SomePrompts());
  EXPECT_TRUE(run.ok()) << run.status();
  return *std::move(run);
}

TEST(PretrainingTest, RateIsWholeThenFallsToItsEnd) {
  const PretrainingOptions options{.steps = 1000};
  EXPECT_EQ(DecayFactor(options, 0), 1);
  EXPECT_EQ(DecayFactor(options, 400), 1);
  EXPECT_NEAR(DecayFactor(options, 700), 0.51, 1e-12);
  EXPECT_NEAR(DecayFactor(options, 999), 0.02, 0.002);
}

TEST(PretrainingTest, ModelHasTheDocumentedSize) {
  const auto run = Start(1, 10);
  const auto count = [](const model::NamedTensors& tensors) {
    int64_t numel = 0;
    for (const auto& [name, tensor] : tensors) {
      if (name != model::kSd3PositionTable) numel += tensor.numel();
    }
    return numel;
  };
  EXPECT_EQ(count(run->TransformerWeights()), 437'776);
  EXPECT_EQ(count(run->TextWeights()), 104'640);
}

TEST(PretrainingTest, LossFallsAndEqualSeedsGiveEqualBits) {
  const auto first = Start(3, 24);
  const auto second = Start(3, 24);
  const auto other = Start(4, 24);
  std::vector<double> losses;
  for (int step = 0; step < 24; ++step) {
    const auto loss = first->Step();
    ASSERT_TRUE(loss.ok()) << loss.status();
    losses.push_back(*loss);
    ASSERT_EQ(*loss, second->Step().value()) << "step " << step;
    if (step < 3) {
      ASSERT_NE(*loss, other->Step().value());
    }
  }
  EXPECT_NEAR(losses[0], 2, 0.2);  // The network starts at v = 0: |eps|^2 + |x0|^2.
  EXPECT_LT(losses[23], 0.98 * losses[0]);
  const auto expect_equal = [](const model::NamedTensors& a, const model::NamedTensors& b) {
    for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  };
  expect_equal(first->TransformerWeights(), second->TransformerWeights());
  expect_equal(first->TextWeights(), second->TextWeights());
}

TEST(PretrainingTest, UntrainedModelDrawsNothingReadable) {
  const auto run = Start(5, 10);
  const auto report =
      EvaluateDigits(run->TransformerWeights(), run->TextWeights(), SomePrompts(),
                     /*per_prompt=*/4, flow::SigmaGrid(flow::ScheduleKind::kLinspace, 4, 1.0), 1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->pictures, 12);
  EXPECT_GT(report->unreadable, 0.9);
  EXPECT_EQ(CheckBaseModel(*report).code(), absl::StatusCode::kFailedPrecondition);
}

// A mean over positions would let this one pass.
TEST(PretrainingTest, GateRefusesAModelThatIgnoresOnePosition) {
  DigitsReport report{.pictures = 128, .reward = 0.52, .strict = 0.13, .speckle = 0.016};
  report.digit_accuracy = {0.55, 0.55, 0.55};
  EXPECT_TRUE(CheckBaseModel(report).ok());
  report.digit_accuracy = {0.80, 0.10, 0.80};
  EXPECT_FALSE(CheckBaseModel(report).ok());
  report.digit_accuracy = {0.55, 0.55, 0.55};
  report.speckle = 0.04;
  EXPECT_FALSE(CheckBaseModel(report).ok());
  report.speckle = 0.016;
  report.reward = 0.7;
  EXPECT_FALSE(CheckBaseModel(report).ok());
}

}  // namespace
}  // namespace oxbow::task
