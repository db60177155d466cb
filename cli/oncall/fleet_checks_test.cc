// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/fleet_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "cli/oncall/metrics_page.h"
#include "run/endpoints_file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

void Set(v1::StatusResponse& status, const std::string& name, double value) {
  for (v1::NamedValue& metric : *status.mutable_metrics()) {
    if (metric.name() == name) return metric.set_value(value);
  }
  v1::NamedValue& metric = *status.add_metrics();
  metric.set_name(name);
  metric.set_value(value);
}

// A healthy fleet: 40 steps of 2 updates.
FleetFacts Good() {
  FleetFacts facts;
  for (const char* name : {"learner", "replay_buffer", "reward_server-0"}) {
    facts.services.push_back({.name = name,
                              .endpoint = "127.0.0.1:1",
                              .state = ServiceFacts::State::kServing,
                              .why = "",
                              .clock_offset_s = 0.01,
                              .round_trip_s = 0.002});
  }
  v1::StatusResponse& status = facts.status.emplace();
  status.set_learner_step(40);
  status.set_steps_total(100);
  status.set_policy_version(80);
  status.set_published_version(80);
  status.set_phase("updating");
  status.set_seconds_since_step(3);
  status.set_lease_seconds(30);
  status.set_lease_age_max_seconds(4);
  status.set_groups_running(2);
  Set(status, "time/step_s", 2);
  Set(status, "train/reward_zero_std_ratio", 0.2);
  Set(status, "train/onpolicy_ratio_err", 0);
  Set(status, "rollout/staleness_mean", 0.8);
  Set(status, "rollout/staleness_max", 1);
  Set(status, "buffer/attached", 1);
  for (const char* id : {"a", "b"}) {
    v1::WorkerStatus& worker = *status.add_workers();
    worker.set_worker_id(id);
    worker.set_policy_version(78);
    worker.set_seconds_since_seen(1);
  }
  v1::InfoResponse& buffer = facts.buffers.emplace_back();
  buffer.set_disk_bytes(kGiB);
  buffer.set_disk_free_bytes(20 * kGiB);
  facts.rewards = {{"reward_server-0", 10'000, 0}};
  facts.staleness_max = 2;
  facts.ratio_tolerance = 0;
  return facts;
}

TEST(FleetChecksTest, AFleetThatIsWellHasNothingToFix) {
  const Checks checks = JudgeFleet(Good());
  EXPECT_EQ(WorstOf(checks), Grade::kOk) << CheckupText(checks);
}

struct Trouble {
  const char* check;
  Grade verdict;
  void (*make)(FleetFacts&);
};

class TroubleTest : public ::testing::TestWithParam<Trouble> {};

TEST_P(TroubleTest, IsSeenByItsCheckAloneAndComesWithAFix) {
  FleetFacts facts = Good();
  GetParam().make(facts);
  const Checks checks = JudgeFleet(facts);
  bool seen = false;
  for (const Check& check : checks) {
    const bool meant = check.name == GetParam().check;
    seen |= meant;
    EXPECT_EQ(check.verdict, meant ? GetParam().verdict : Grade::kOk)
        << check.name << ": " << check.found;
    EXPECT_EQ(check.fix.empty(), !meant) << check.name;
  }
  EXPECT_TRUE(seen) << CheckupText(checks);
}

using State = ServiceFacts::State;
INSTANTIATE_TEST_SUITE_P(
    All, TroubleTest,
    ::testing::Values(
        Trouble{"replay_buffer 127.0.0.1:1", Grade::kFail,
                [](FleetFacts& f) { f.services[1].state = State::kSilent; }},
        Trouble{"learner 127.0.0.1:1", Grade::kFail,
                [](FleetFacts& f) { f.services[0].state = State::kRefused; }},
        Trouble{"learner 127.0.0.1:1", Grade::kWarn,
                [](FleetFacts& f) { f.services[0].state = State::kNotServing; }},
        Trouble{"clocks", Grade::kWarn, [](FleetFacts& f) { f.services[2].clock_offset_s = -3; }},
        Trouble{"clocks", Grade::kFail, [](FleetFacts& f) { f.services[2].clock_offset_s = 90; }},
        Trouble{"last step", Grade::kWarn,
                [](FleetFacts& f) { f.status->set_seconds_since_step(90); }},
        Trouble{"last step", Grade::kFail,
                [](FleetFacts& f) { f.status->set_seconds_since_step(900); }},
        Trouble{"numbers", Grade::kFail,
                [](FleetFacts& f) {
                  Set(*f.status, "train/grad_norm", std::numeric_limits<double>::quiet_NaN());
                }},
        Trouble{"on-policy ratio", Grade::kWarn,
                [](FleetFacts& f) { Set(*f.status, "train/onpolicy_ratio_err", 1e-6); }},
        Trouble{"signal", Grade::kWarn,
                [](FleetFacts& f) { Set(*f.status, "train/reward_zero_std_ratio", 0.95); }},
        Trouble{"staleness", Grade::kWarn,
                [](FleetFacts& f) {
                  Set(*f.status, "rollout/staleness_mean", 2);
                  Set(*f.status, "rollout/staleness_max", 2);
                }},
        Trouble{"staleness", Grade::kFail,
                [](FleetFacts& f) { Set(*f.status, "rollout/staleness_max", 3); }},
        Trouble{"workers", Grade::kWarn,
                [](FleetFacts& f) { f.status->mutable_workers(0)->set_seconds_since_seen(100); }},
        Trouble{"workers", Grade::kFail,
                [](FleetFacts& f) {
                  for (auto& w : *f.status->mutable_workers()) w.set_seconds_since_seen(100);
                }},
        Trouble{"workers", Grade::kFail, [](FleetFacts& f) { f.status->clear_workers(); }},
        Trouble{"worker ids", Grade::kWarn,
                [](FleetFacts& f) { f.status->add_duplicate_worker_ids("gpu-1"); }},
        Trouble{"versions", Grade::kWarn,
                [](FleetFacts& f) { f.status->mutable_workers(1)->set_version("0.1"); }},
        Trouble{"bad workers", Grade::kWarn,
                [](FleetFacts& f) { f.status->mutable_workers(0)->set_failures(3); }},
        Trouble{"bad workers", Grade::kFail,
                [](FleetFacts& f) {
                  for (auto& w : *f.status->mutable_workers()) w.set_failures(4);
                }},
        Trouble{"weights lag", Grade::kWarn,
                [](FleetFacts& f) { f.status->mutable_workers(1)->set_policy_version(60); }},
        Trouble{"leases", Grade::kWarn,
                [](FleetFacts& f) { f.status->set_lease_age_max_seconds(200); }},
        Trouble{"groups failing", Grade::kWarn,
                [](FleetFacts& f) {
                  f.status->mutable_last_failure()->set_count(2);
                  f.status->mutable_last_failure()->set_seconds_since_first(2);
                }},
        Trouble{"groups failing", Grade::kFail,
                [](FleetFacts& f) {
                  f.status->mutable_last_failure()->set_count(2);
                  f.status->mutable_last_failure()->set_seconds_since_first(70);
                }},
        Trouble{"groups failing", Grade::kFail,
                [](FleetFacts& f) {
                  f.status->mutable_workers(0)->set_waiting_for("reward server x: gone");
                  f.status->set_phase("waiting for rewards");
                }},
        Trouble{"process rollout_worker-1", Grade::kFail,
                [](FleetFacts& f) {
                  f.down["rollout_worker-1"] = "ended with exit code 10, 7 times in a row";
                }},
        Trouble{"notices", Grade::kWarn,
                [](FleetFacts& f) { f.status->add_notices("the checkpoint cannot be written"); }},
        Trouble{"copies", Grade::kWarn,
                [](FleetFacts& f) { Set(*f.status, "checkpoint/copies_failed", 2); }},
        Trouble{"quarantine", Grade::kWarn,
                [](FleetFacts& f) {
                  f.status->set_prompts_quarantined(1);
                  f.status->add_quarantined()->set_text("text 7");
                }},
        Trouble{"replay", Grade::kWarn,
                [](FleetFacts& f) { Set(*f.status, "buffer/attached", 0); }},
        Trouble{"scores of reward_server-0", Grade::kWarn,
                [](FleetFacts& f) { f.rewards[0].refused = 100; }},
        Trouble{"scores of reward_server-0", Grade::kFail,
                [](FleetFacts& f) { f.rewards[0].refused = 5000; }},
        Trouble{"buffer disk", Grade::kWarn,
                [](FleetFacts& f) { f.buffers[0].set_disk_free_bytes(kGiB / 2); }},
        Trouble{"buffer disk", Grade::kFail,
                [](FleetFacts& f) { f.buffers[0].set_disk_free_bytes(1 << 20); }}));

TEST(FleetChecksTest, SlowStepsAreGivenTheirTime) {
  FleetFacts facts = Good();
  Set(*facts.status, "time/step_s", 300);
  facts.status->set_seconds_since_step(900);
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kOk);
}

Grade LastStepOf(const FleetFacts& facts) {
  for (const Check& check : JudgeFleet(facts)) {
    if (check.name == "last step") return check.verdict;
  }
  return Grade::kOk;
}

TEST(FleetChecksTest, AFirstStepOrAnEvaluationMayTakeAsLongAsItTakes) {
  FleetFacts first = Good();
  first.status->clear_metrics();
  FleetFacts evaluation = Good();
  evaluation.status->set_phase("evaluating");
  for (FleetFacts* facts : {&first, &evaluation}) {
    facts->status->set_seconds_since_step(30);
    EXPECT_EQ(LastStepOf(*facts), Grade::kOk);
    facts->status->set_seconds_since_step(5000);
    EXPECT_EQ(LastStepOf(*facts), Grade::kWarn);
  }
}

TEST(FleetChecksTest, RoundingIsNoBiasWhereTheRunRounds) {
  FleetFacts facts = Good();
  facts.ratio_tolerance = FleetFacts().ratio_tolerance;
  Set(*facts.status, "train/onpolicy_ratio_err", 2e-5);
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kOk);
  Set(*facts.status, "train/onpolicy_ratio_err", 3e-4);
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kWarn);
  Set(*facts.status, "train/onpolicy_ratio_limit", 5e-4);
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kOk) << "the run's clip range bears it";
  Set(*facts.status, "train/onpolicy_ratio_limit", 5e-6);
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kWarn);
}

// Promise: No step is lost in silence.
TEST(FleetChecksTest, AStepThatTrainedNothingIsSaid) {
  FleetFacts facts = Good();
  Set(*facts.status, "train/samples_trained", 64);
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kOk);
  Set(*facts.status, "train/samples_trained", 0);
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kWarn);
}

TEST(FleetChecksTest, ASlowCallIsNoSkew) {
  FleetFacts facts = Good();
  facts.services[0].clock_offset_s = 2;
  facts.services[0].round_trip_s = 4;
  EXPECT_EQ(WorstOf(JudgeFleet(facts)), Grade::kOk);
}

TEST(FleetChecksTest, ALearnerThatIsGoneIsTheOnlyThingToSay) {
  FleetFacts facts;
  facts.services = {{.name = "learner", .endpoint = "127.0.0.1:1", .why = "refused"}};
  const Checks checks = JudgeFleet(facts);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].verdict, Grade::kFail);
  EXPECT_THAT(checks[0].fix, HasSubstr("--resume"));
}

TEST(FleetFactsTest, WhoHasNoAddressYetIsNotAsked) {
  const oxbow::testing::ScopedDirectory run;
  ASSERT_TRUE(run::WriteEndpoints(run.path(), {{"learner"}, {"reward_server-0"}}).ok());
  const auto facts = AskFleetOfRun(run.path().string(), absl::Milliseconds(200));
  ASSERT_TRUE(facts.ok()) << facts.status();
  ASSERT_EQ(facts->services.size(), 2u);
  for (const ServiceFacts& service : facts->services) {
    EXPECT_EQ(service.state, ServiceFacts::State::kSilent);
    EXPECT_THAT(service.why, HasSubstr("starts"));
  }
}

TEST(MetricsPageTest, SumsTheSeriesOfAFamilyByLabel) {
  const std::string page =
      "# HELP oxbow_x_total text\n"
      "oxbow_x_total{outcome=\"scored\",reward=\"a\"} 3\n"
      "oxbow_x_total{outcome=\"scored\",reward=\"b\"} 4.5\n"
      "oxbow_x_total{outcome=\"failed\",reward=\"a\"} 1\n"
      "oxbow_x_total_more 100\n"
      "oxbow_y 2\n";
  EXPECT_EQ(SumOfSeries(page, "oxbow_x_total", "outcome=\"scored\""), 7.5);
  EXPECT_EQ(SumOfSeries(page, "oxbow_x_total", ""), 8.5);
  EXPECT_EQ(SumOfSeries(page, "oxbow_y", ""), 2);
  EXPECT_EQ(SumOfSeries(page, "oxbow_z", ""), 0);
  EXPECT_FALSE(FetchMetrics("127.0.0.1:1", absl::Milliseconds(200)).ok());
}

}  // namespace
}  // namespace oxbow::cli
