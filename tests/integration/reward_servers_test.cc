// SPDX-License-Identifier: Apache-2.0
// A run with two reward servers elsewhere, each with a reward of its own: the trained one on A, the
// observed one on B. Either may die or hang in the middle of the run.
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/scripted_rewards.h"
#include "tests/integration/training_run.h"
#include "tests/testing/eventually.h"
#include "tests/testing/process.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kSteps = 12;
constexpr int kSamples = 16;  // In each step.

class RewardServersTest : public ::testing::Test {
 protected:
  // A real server of one reward.
  class Server {
   public:
    explicit Server(const std::string& reward)
        : process_(Process::Start({.argv = {BinaryPath("reward_server"), "--rewards", reward}})
                       .value()) {
      const auto ready = process_->WaitForLine("READY", absl::Seconds(60));
      EXPECT_TRUE(ready.ok()) << ready.status();
      if (ready.ok()) endpoint_ = ValueOf(*ready, "grpc");
    }
    const std::string& endpoint() const { return endpoint_; }
    void Signal(int signal) { process_->Kill(signal); }

   private:
    std::unique_ptr<Process> process_;
    std::string endpoint_;
  };

  // A silence of a second makes a server one that is away.
  static std::vector<std::string> Settings(const std::vector<std::string>& more) {
    std::vector<std::string> settings = {absl::StrCat("run.steps=", kSteps),
                                         "run.deterministic=true",
                                         "batch.groups=4",
                                         "batch.group_size=4",
                                         "services.lease_seconds=3",
                                         "reward.tries=1",
                                         "reward.timeout_seconds=1",
                                         "reward.terms=[{name: digits_ocr, weight: 1}]"};
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  }

  std::vector<std::string> OnBothServers() const {
    return Settings({absl::StrCat("reward.endpoints=[\"", trained_.endpoint(), "\", \"",
                                  observed_.endpoint(), "\"]"),
                     "reward.observed=[brightness]"});
  }

  // The results of a run without any trouble, and without an observed reward.
  static void ExpectThatOfAQuietRun(TrainingRun& run) {
    TrainingRun quiet(Settings({"reward.observed=[]"}));
    ASSERT_EQ(quiet.WaitExit().value(), 0) << quiet.process().error_output();
    const std::vector<double> losses = quiet.Series("train/loss");
    ASSERT_THAT(losses, SizeIs(kSteps));
    EXPECT_THAT(run.Series("train/loss"), ElementsAreArray(losses));
    EXPECT_THAT(run.Series("train/samples_unscored"), Each(0));
    EXPECT_EQ(run.FinalWeights(), quiet.FinalWeights());
    EXPECT_THAT(run.process().error_output(), Not(HasSubstr("started again")));
  }

  // The run has to end while the observed reward's server is away.
  void ExpectThatNobodyWaitsForTheObservedOne(int signal) {
    TrainingRun run(OnBothServers());
    ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
    observed_.Signal(signal);
    ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
    const std::vector<double> failed = run.Series("train/reward_brightness_failed");
    ASSERT_THAT(failed, Not(SizeIs(0)));
    EXPECT_EQ(failed.back(), kSamples) << "all samples of the last step";
    const std::vector<double> means = run.Series("train/reward_brightness_mean");
    EXPECT_THAT(means, SizeIs(AllOf(Ge(1), Le(kSteps - 1)))) << "no score is made up";
    ExpectThatOfAQuietRun(run);
  }

  Server trained_ = Server("digits_ocr");
  Server observed_ = Server("brightness");
};

// Promise: An observed reward that fails touches nothing else.
TEST_F(RewardServersTest, TheServerOfAnObservedRewardDiesAndTheRunDoesNotNotice) {
  ExpectThatNobodyWaitsForTheObservedOne(SIGKILL);
}

// Promise: An observed reward that fails touches nothing else.
TEST_F(RewardServersTest, TheServerOfAnObservedRewardHangsAndNobodyWaitsForIt) {
  ExpectThatNobodyWaitsForTheObservedOne(SIGSTOP);
}

// Promise: Rewards may be spread over servers.
TEST_F(RewardServersTest, TheServerOfATrainedRewardHangsAndTheRunWaitsAndLosesNothing) {
  TrainingRun run(OnBothServers());
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  trained_.Signal(SIGSTOP);
  const auto status = [&] {
    return RunOxbow({"status", "--run", run.directory().string()}).output;
  };
  EXPECT_TRUE(Eventually([&] {
    const std::string says = status();
    return absl::StrContains(says, "for rewards: ") && absl::StrContains(says, trained_.endpoint());
  })) << status();
  EXPECT_LT(run.metrics().back()["step"].get<int64_t>(), kSteps);
  trained_.Signal(SIGCONT);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  ExpectThatOfAQuietRun(run);
}

// A server elsewhere has the reward of an entry, too, under another scale.
// Promise: Rewards may be spread over servers.
TEST(RewardPlacesTest, OnlyOwnServersAreAskedForARewardWithAnEntry) {
  constexpr double kElsewhere = 1000;
  ScriptedRewards elsewhere(
      {"digits_ocr", "brightness"}, [](const std::string&, const v1::Image& image) {
        return ScriptedRewards::Answer{
            .value = kElsewhere + Brightness(image), .item_error = {}, .call_error = {}};
      });
  TrainingRun run({"run.steps=3", "batch.groups=4", "batch.group_size=4",
                   absl::StrCat("reward.endpoints=[\"", elsewhere.endpoint(), "\"]"),
                   "reward.terms=[{name: digits_ocr, weight: 1}]", "reward.observed=[brightness]",
                   "reward.scorers=[{name: brightness}]"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/reward_digits_ocr_mean"), Each(Ge(kElsewhere)));
  EXPECT_THAT(run.Series("train/reward_brightness_mean"), AllOf(SizeIs(3), Each(Le(1))));
}

}  // namespace
}  // namespace oxbow::testing
