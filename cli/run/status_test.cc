// SPDX-License-Identifier: Apache-2.0
#include "cli/run/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "cli/run/run_display.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::StatusResponse SomeStatus() {
  v1::StatusResponse status;
  status.set_run_name("digits");
  status.set_learner_step(12);
  status.set_steps_total(100);
  status.set_phase("waiting for rollouts");
  status.set_seconds_since_step(1.5);
  status.set_groups_running(3);
  status.set_lease_age_max_seconds(2.5);
  const auto set = [&](const char* name, double value) {
    v1::NamedValue& metric = *status.add_metrics();
    metric.set_name(name);
    metric.set_value(value);
  };
  set("train/reward_mean", 0.5);
  set("train/reward_digits_ocr_mean", 0.75);
  set("train/reward_group_std_mean", 0.1);
  set("train/reward_zero_std_ratio", 0.25);
  set("train/kl_div", std::numeric_limits<double>::quiet_NaN());
  set("buffer/attached", 1);
  set("buffer/size", 40);
  return status;
}

TEST(StatusTest, TextSaysWhatAPersonAsksFirst) {
  const std::string text = StatusText(SomeStatus());
  EXPECT_THAT(
      text, AllOf(HasSubstr("step 12/100"), HasSubstr("waiting for rollouts, last step 1.5 s ago"),
                  HasSubstr("digits_ocr 0.750; 25 % of groups without a signal"),
                  HasSubstr("3 running (the oldest for 2.5 s)"), HasSubstr("replay     40 entries"),
                  HasSubstr("no worker is connected"), Not(HasSubstr("group_std"))));
}

TEST(StatusTest, ARewardThatIsNotTrainedOnIsMarked) {
  v1::StatusResponse status = SomeStatus();
  status.add_metrics()->set_name("train/reward_digits_row_mean");
  status.add_rewards_observed("digits_row");
  EXPECT_THAT(StatusText(status),
              AllOf(HasSubstr("digits_ocr 0.750,"), HasSubstr("digits_row (observed) 0.000;")));
}

TEST(StatusTest, ARunWithoutWorkersIsLimitedByThatAndOneThatFailsByWhatFails) {
  v1::StatusResponse status = SomeStatus();
  v1::NamedValue& share = *status.add_time_share();
  share.set_name("update");
  share.set_value(1);
  EXPECT_THAT(StatusText(status), AllOf(HasSubstr("limit      no worker is connected\n"),
                                        Not(HasSubstr("learner update"))));
  v1::WorkerStatus& worker = *status.add_workers();
  EXPECT_THAT(StatusText(status), HasSubstr("limit      learner update"));
  worker.set_waiting_for("reward server x: connection refused");
  EXPECT_THAT(StatusText(status), Not(HasSubstr("limit ")));
}

TEST(StatusTest, TextHasTheLastWordsOfABadWorker) {
  v1::StatusResponse status = SomeStatus();
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("gpu-3");
  worker.set_failures(2);
  worker.set_failure("torch: no");
  EXPECT_THAT(StatusText(status), Not(HasSubstr("bad ")));
  worker.set_failures(4);
  worker.set_rests_seconds(51.6);
  EXPECT_THAT(StatusText(status),
              HasSubstr("bad        gpu-3: 4 leases failed one after another, the next in 52 s: "
                        "torch: no\n"));
}

TEST(StatusTest, TextNamesMembersOfAnotherBuild) {
  v1::StatusResponse status = SomeStatus();
  status.set_version("1.2");
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("w1");
  worker.set_version("1.2");
  status.add_ranks()->set_rank(1);
  EXPECT_THAT(StatusText(status), Not(HasSubstr("version    ")));
  worker.set_version("1.1");
  status.mutable_ranks(0)->set_version("1.3");
  EXPECT_THAT(StatusText(status),
              AllOf(HasSubstr("version    rank 1 is oxbow 1.3, the learner oxbow 1.2\n"),
                    HasSubstr("version    w1 is oxbow 1.1, the learner oxbow 1.2\n")));
}

TEST(StatusTest, ALearnerThatRefusesTheCallIsNotAway) {
  const absl::Status refused =
      NoStatus(absl::PermissionDeniedError("worker:w7 may not call Status, only operator may"),
               "gpu-1:7070");
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("answers at gpu-1:7070"), HasSubstr("only operator may"),
                    HasSubstr("--tls-cert"), Not(HasSubstr("has the run ended"))));
  EXPECT_THAT(std::string(NoStatus(absl::UnavailableError("refused"), "x:1").message()),
              HasSubstr("no learner answers at x:1 (has the run ended?)"));
}

TEST(StatusTest, AnotherServiceIsNoLearnerThatHasEnded) {
  reward::FakeRewardServer server({}, 1, nullptr);
  const absl::Status status =
      NoStatus(AskStatus(server.endpoint(), absl::Seconds(20)).status(), server.endpoint());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              StartsWith(absl::StrCat("no learner is at ", server.endpoint(),
                                      ": another service listens there")));
}

TEST(StatusTest, TextSaysThatCopiesOfCheckpointsFailed) {
  v1::StatusResponse status = SomeStatus();
  v1::NamedValue& failed = *status.add_metrics();
  failed.set_name("checkpoint/copies_failed");
  EXPECT_THAT(StatusText(status), Not(HasSubstr("copies ")));
  failed.set_value(3);
  EXPECT_THAT(StatusText(status), HasSubstr("copies     3 copies of checkpoints failed"));
}

TEST(StatusTest, TextHasTheLastFailureUntilAStepIsCommittedAndWhatHasNoScore) {
  v1::StatusResponse status = SomeStatus();
  v1::Failure& failure = *status.mutable_last_failure();
  failure.set_what("group");
  failure.set_reason("reward of sample 2: CUDA out of memory");
  failure.set_count(3);
  failure.set_seconds_since_last(1);
  const std::string trouble =
      "3 failures since the last step, the last of a group: reward of sample 2: CUDA out of memory";
  EXPECT_THAT(StatusText(status), HasSubstr("trouble    " + trouble));
  EXPECT_THAT(ProgressLine(status, std::nullopt, 64), HasSubstr(trouble));
  EXPECT_THAT(ProgressLine(status, 2.0, 64), HasSubstr(trouble));
  failure.set_seconds_since_last(2);  // The last step was committed 1.5 s ago.
  EXPECT_THAT(StatusText(status), Not(HasSubstr("trouble")));

  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("w2");
  worker.set_waiting_for("reward server x: connection refused");
  EXPECT_THAT(StatusText(status),
              HasSubstr("trouble    w2 waits for rewards: reward server x: connection refused"));
  *status.add_workers() = worker;
  EXPECT_THAT(StatusText(status), HasSubstr("w2 and 1 more wait for rewards: reward server x"));
  status.set_samples_unscored(12);
  status.set_prompts_quarantined(1);
  status.add_quarantined()->set_text("text 7");
  status.mutable_quarantined(0)->set_reason("not finite (nan)");
  EXPECT_THAT(StatusText(status), AllOf(HasSubstr("12 samples dropped"),
                                        HasSubstr("\"text 7\", step 0: not finite (nan)")));
}

TEST(StatusTest, ALongReasonIsCutBetweenCharacters) {
  v1::StatusResponse status = SomeStatus();
  std::string reason;
  for (int i = 0; i < 200; ++i) reason += "\u00e9\n";
  status.add_workers()->set_waiting_for(reason);
  const std::string line = ProgressLine(status, std::nullopt, 64);
  EXPECT_LT(line.size(), 260);
  EXPECT_THAT(line, AllOf(Not(HasSubstr("\n")), ::testing::EndsWith("...")));
  EXPECT_NE(static_cast<unsigned char>(line[line.size() - 4]), 0xc3) << "half of a character";
}

TEST(StatusTest, TextTakesTheRateThatWasWatched) {
  v1::StatusResponse status = SomeStatus();
  v1::NamedValue& samples = *status.add_metrics();
  samples.set_name("train/samples");
  samples.set_value(100);
  EXPECT_THAT(StatusText(status, 2.0), AllOf(HasSubstr("200 images/s"), HasSubstr("ETA 0:44")));
}

TEST(StatusTest, JsonIsOneLineWithEveryNumberAndNullForBrokenOnes) {
  const std::string line = StatusJson(SomeStatus());
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["run_name"], "digits");
  EXPECT_EQ(json["metrics"]["train/reward_mean"], 0.5);
  EXPECT_TRUE(json["metrics"]["train/kl_div"].is_null());
  EXPECT_EQ(json["lease_age_max_seconds"], 2.5);
  EXPECT_TRUE(json["workers"].is_array());
}

}  // namespace
}  // namespace oxbow::cli
