// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run/run_display.h"
#include "cli/terminal.h"

namespace oxbow::cli {
namespace {

v1::StatusResponse Status() {
  v1::StatusResponse status;
  status.set_learner_step(37);
  status.set_steps_total(100);
  status.set_phase("waiting");
  for (const auto& [name, value] : std::map<std::string, double>{{"train/reward_mean", 0.9},
                                                                 {"train/clip_frac_total", 0.004},
                                                                 {"buffer/staleness_mean", 1.5}}) {
    auto& metric = *status.add_metrics();
    metric.set_name(name);
    metric.set_value(value);
  }
  return status;
}

TEST(ProgressLineTest, SaysWhatARunDoes) {
  EXPECT_EQ(ProgressLine(Status(), 5.0, 64),
            "step 37/100  reward 0.900  clip 0.4 %  head age 1.5  320 images/s  ETA 0:13");
  EXPECT_EQ(ProgressLine(Status(), std::nullopt, 64),
            "step 37/100  reward 0.900  clip 0.4 %  head age 1.5  waiting");
}

TEST(ProgressLineTest, ARunWithoutNumbersIsStillALine) {
  v1::StatusResponse status;
  status.set_phase("loading");
  EXPECT_EQ(ProgressLine(status, std::nullopt, 64), "step 0/0  loading");
  EXPECT_EQ(Bottleneck(status), "");
}

// Promise: No step is lost in silence.
TEST(ProgressLineTest, AStepThatTrainedNothingIsOnTheLine) {
  v1::StatusResponse status = Status();
  auto& trained = *status.add_metrics();
  trained.set_name("train/samples_trained");
  trained.set_value(0);
  EXPECT_EQ(ProgressLine(status, std::nullopt, 64),
            "step 37/100  reward 0.900  clip 0.4 %  head age 1.5  the last step trained no sample"
            "  waiting");
  auto& equal = *status.add_metrics();
  equal.set_name("train/reward_zero_std_ratio");
  equal.set_value(1);
  EXPECT_THAT(ProgressLine(status, std::nullopt, 64),
              ::testing::HasSubstr("no sample: the rewards of each group are equal"));
  status.mutable_metrics()->RemoveLast();
  status.mutable_metrics(status.metrics_size() - 1)->set_value(64);
  EXPECT_EQ(ProgressLine(status, std::nullopt, 64), ProgressLine(Status(), std::nullopt, 64));
}

TEST(ProgressBarTest, FitsEveryWidthAndKeepsStepEtaAndHeldOut) {
  v1::StatusResponse status = Status();
  auto& held_out = *status.add_metrics();
  held_out.set_name("eval/reward_mean");
  held_out.set_value(0.943);
  EXPECT_EQ(ProgressBar(status, 5.0, 64, 120),
            "[========                ]  step 37/100  reward 0.900  held-out 0.943  clip 0.4 %"
            "  head age 1.5  320 images/s  ETA 0:13");
  EXPECT_EQ(ProgressBar(status, 5.0, 64, 80),
            "[===       ]  step 37/100  reward 0.900  held-out 0.943  320 images/s  ETA 0:13");
  EXPECT_EQ(ProgressBar(status, 5.0, 64, 60),
            "step 37/100  reward 0.900  held-out 0.943  ETA 0:13");
  for (size_t width = 1; width < 150; ++width) {
    EXPECT_LE(ProgressBar(status, 5.0, 64, width).size(), width);
  }
}

TEST(ProgressBarTest, TroubleIsCutNotDropped) {
  v1::StatusResponse status = Status();
  status.mutable_last_failure()->set_count(3);
  status.mutable_last_failure()->set_what("group");
  status.mutable_last_failure()->set_reason("CUDA out of memory on device 0");
  EXPECT_EQ(ProgressBar(status, 5.0, 64, 60),
            "step 37/100  3 failures since the last step, the last of ...");
}

TEST(ProgressLineTest, AWaitForRewardsIsSaidOnceAndAFailedEvaluationStays) {
  v1::StatusResponse status;
  status.set_phase("waiting for rewards");
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("w2");
  worker.set_waiting_for("reward server x: connection refused");
  EXPECT_EQ(ProgressLine(status, std::nullopt, 64),
            "step 0/0  w2 waits for rewards: reward server x: connection refused");
  status.clear_workers();
  v1::Failure& check = *status.mutable_last_failure();
  check.set_what("reward check");
  check.set_count(2);
  check.set_reason("reward server x gave no score");
  EXPECT_EQ(ProgressLine(status, std::nullopt, 64),
            "step 0/0  waits for rewards: reward server x gave no score");
  status.clear_last_failure();
  v1::NamedValue& failed = *status.add_metrics();
  failed.set_name("eval/failed");
  failed.set_value(1);
  EXPECT_EQ(ProgressLine(status, std::nullopt, 64),
            "step 0/0  held-out failed  waiting for rewards");
}

TEST(ProgressLineTest, TheLargestTimeShareLimits) {
  v1::StatusResponse status;
  for (const auto& [name, value] : std::map<std::string, double>{{"update", 0.3}, {"wait", 0.62}}) {
    auto& share = *status.add_time_share();
    share.set_name(name);
    share.set_value(value);
  }
  status.add_workers();
  EXPECT_EQ(Bottleneck(status), "rollouts: waiting for rollouts 62 %");
  status.mutable_time_share(0)->set_value(0.7);
  EXPECT_EQ(Bottleneck(status), "learner update: updating the policy 70 %");
}

TEST(StepRateTest, FollowsTheLastSecondsAndForgetsAResume) {
  StepRate rate(absl::Seconds(10));
  rate.Observe(absl::Seconds(0), 0);
  EXPECT_FALSE(rate.per_second());
  rate.Observe(absl::Seconds(5), 10);
  EXPECT_DOUBLE_EQ(*rate.per_second(), 2);
  rate.Observe(absl::Seconds(20), 25);  // The first 5 s are out of the window.
  EXPECT_DOUBLE_EQ(*rate.per_second(), 1);
  rate.Observe(absl::Seconds(21), 20);
  EXPECT_FALSE(rate.per_second());
}

TEST(ClockTextTest, GrowsWithTheTime) {
  EXPECT_EQ(ClockText(12.4), "0:12");
  EXPECT_EQ(ClockText(3 * 3600 + 4 * 60 + 5), "3:04:05");
}

}  // namespace
}  // namespace oxbow::cli
