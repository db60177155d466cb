// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/run_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace oxbow::learner {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::map<std::string, double> NumbersOf(const RunProgress& progress) {
  v1::StatusResponse status;
  progress.FillStatus(status);
  std::map<std::string, double> numbers;
  for (const v1::NamedValue& number : status.metrics()) numbers[number.name()] = number.value();
  return numbers;
}

// A number that only some steps have must not be shown after its step.
TEST(RunProgressTest, NumbersAreThoseOfTheLastStepAndOfTheLastEvaluation) {
  FakeClock clock;
  prometheus::Registry registry;
  LearnerMetrics metrics(registry);
  RunProgress progress(clock, metrics, /*steps_total=*/9);
  progress.StepCommitted(1, 1,
                         {{"train/loss", 0.5},
                          {"replay/ratio", std::numeric_limits<double>::quiet_NaN()},
                          {"eval/reward_mean", 0.25},
                          {"eval/reward_a_mean", 0.1}});
  progress.StepCommitted(2, 2, {{"train/loss", 0.75}});
  EXPECT_THAT(NumbersOf(progress),
              UnorderedElementsAre(Pair("train/loss", 0.75), Pair("eval/reward_a_mean", 0.1),
                                   Pair("eval/reward_mean", 0.25)));
  progress.StepCommitted(3, 3, {{"train/loss", 1}, {"eval/reward_mean", 0.5}});
  EXPECT_THAT(NumbersOf(progress),
              UnorderedElementsAre(Pair("train/loss", 1), Pair("eval/reward_mean", 0.5)));
}

// A run that waits for ever is limited by its wait, though no wait has ended.
TEST(RunProgressTest, APhaseThatHasNotEndedCountsInTheShares) {
  FakeClock clock;
  prometheus::Registry registry;
  LearnerMetrics metrics(registry);
  RunProgress progress(clock, metrics, /*steps_total=*/9);
  clock.Advance(absl::Seconds(1));
  progress.Enter("wait");
  clock.Advance(absl::Seconds(3));
  v1::StatusResponse status;
  progress.FillStatus(status);
  std::map<std::string, double> shares;
  for (const v1::NamedValue& share : status.time_share()) shares[share.name()] = share.value();
  EXPECT_THAT(shares, UnorderedElementsAre(Pair("plan", 0.25), Pair("wait", 0.75)));
}

// The first words of `oxbow train --resume`: "resumed at step 5 of 9".
// Promise: Resume continues from the checkpoint.
TEST(RunProgressTest, AResumedRunIsAtItsCheckpointFromTheFirstStatusOn) {
  FakeClock clock;
  prometheus::Registry registry;
  LearnerMetrics metrics(registry);
  const RunProgress progress(clock, metrics, /*steps_total=*/9, /*committed=*/5, /*version=*/10);
  v1::StatusResponse status;
  progress.FillStatus(status);
  EXPECT_EQ(status.learner_step(), 5u);
  EXPECT_EQ(status.policy_version(), 10u);
}

TEST(RunProgressTest, ANoticeIsInEveryStatusAndTheirNumberHasALimit) {
  FakeClock clock;
  prometheus::Registry registry;
  LearnerMetrics metrics(registry);
  RunProgress progress(clock, metrics, /*steps_total=*/9);
  for (size_t i = 0; i < kNoticesMax + 3; ++i) progress.Notice("reward " + std::to_string(i));
  v1::StatusResponse status;
  progress.FillStatus(status);
  EXPECT_EQ(status.notices_size(), kNoticesMax);
  EXPECT_EQ(status.notices(0), "reward 0");
}

}  // namespace
}  // namespace oxbow::learner
