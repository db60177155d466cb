// SPDX-License-Identifier: Apache-2.0
#include "config/device_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/run_config.h"

namespace oxbow::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::RunConfig RunOn(int gpus, std::vector<std::string> set) {
  set.insert(set.begin(), {"recipe=digits-op-grpo", "model.device=cuda"});
  const auto resolved = LoadRunConfig({}, set, {}, gpus);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved->config;
}

constexpr char kRewardsOnGpu[] = "reward.scorers=[{name: digits_ocr, device: cuda}]";

std::pair<uint32_t, uint32_t> CountsOn(int gpus, std::vector<std::string> set) {
  set.insert(set.begin(), {"learner.ranks=auto", "services.rollout_workers=auto"});
  const v1::RunConfig run = RunOn(gpus, set);
  return {run.learner().ranks(), run.services().rollout_workers()};
}

TEST(DevicePlanTest, AutoIsARankAndAWorkerOnEachGpu) {
  const std::string groups = "batch.groups=48";
  for (const int gpus : {1, 2, 4, 8}) {
    const auto each = static_cast<uint32_t>(gpus);
    EXPECT_EQ(CountsOn(gpus, {groups}), std::pair(each, each));
  }
  EXPECT_EQ(CountsOn(0, {groups}), std::pair(1U, 1U)) << "no GPU";
  EXPECT_EQ(CountsOn(8, {groups, "model.device=cpu"}), std::pair(1U, 1U));
  EXPECT_EQ(CountsOn(8, {groups, "model.device=cuda:1"}), std::pair(1U, 1U));
}

TEST(DevicePlanTest, AutoKeepsTheRulesOfRanks) {
  EXPECT_EQ(CountsOn(8, {"batch.groups=12"}), std::pair(6U, 8U)) << "ranks divide groups";
  EXPECT_EQ(CountsOn(8, {"batch.groups=12", kRewardsOnGpu}), std::pair(6U, 7U))
      << "the last GPU is the rewards'";
  EXPECT_EQ(CountsOn(8, {"batch.groups=8", "replay.added=4"}).first, 4U);
  EXPECT_EQ(CountsOn(8, {"batch.groups=8", "publish.transport=broadcast"}), std::pair(4U, 4U));
  EXPECT_EQ(CountsOn(8, {"batch.groups=8", "learner.ranks=2"}), std::pair(2U, 8U));
}

TEST(DevicePlanTest, WhereBothDoNotFitOnOneGpuEachTakesHalf) {
  const auto apart = [](int gpus, GpuSharing sharing, uint32_t ranks = kAuto,
                        uint32_t workers = kAuto) {
    v1::RunConfig run = RunOn(0, {"batch.groups=48", kRewardsOnGpu});
    run.mutable_learner()->set_ranks(ranks);
    run.mutable_services()->set_rollout_workers(workers);
    CountProcesses(gpus, sharing, run);
    return std::pair(run.learner().ranks(), run.services().rollout_workers());
  };
  EXPECT_EQ(apart(8, GpuSharing::kApart), std::pair(4U, 4U));
  EXPECT_EQ(apart(8, GpuSharing::kApartFromRewards), std::pair(4U, 3U));
  EXPECT_EQ(apart(2, GpuSharing::kApart), std::pair(1U, 1U));
  EXPECT_EQ(apart(2, GpuSharing::kApartFromRewards), std::pair(1U, 1U));
  EXPECT_EQ(apart(1, GpuSharing::kApart), std::pair(1U, 1U)) << "there is one GPU";
  EXPECT_EQ(apart(8, GpuSharing::kApart, 2), std::pair(2U, 6U));
  EXPECT_EQ(apart(8, GpuSharing::kApart, kAuto, 2), std::pair(6U, 2U));
}

TEST(DevicePlanTest, AutoIsOnlyForTheNumbersOfProcesses) {
  const auto refused = LoadRunConfig({}, {"batch.groups=auto"}, {});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("batch.groups"));
  const auto wrong = LoadRunConfig({}, {"learner.ranks=many"}, {});
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("a whole number from 0 on, or auto"));
  EXPECT_FALSE(LoadRunConfig({}, {"learner.ranks=4294967295"}, {}).ok()) << "it means auto";
  const auto kept = LoadRunConfig({}, {"learner.ranks=auto"}, {}, kLeaveAuto);
  ASSERT_TRUE(kept.ok());
  EXPECT_THAT(ChosenYaml(*kept), HasSubstr("ranks: auto"));
}

TEST(DevicePlanTest, WorkersTakeTheGpusBehindTheRanksAndThenTheFirstOnes) {
  const DevicePlan plan =
      PlanDevices(RunOn(4, {"batch.groups=8", "learner.ranks=2", "services.rollout_workers=3"}), 4);
  EXPECT_THAT(plan.ranks, ElementsAre(0, 1));
  EXPECT_THAT(plan.workers, ElementsAre(2, 3, 0));
}

// Promise: Each process has a device that holds it.
TEST(DevicePlanTest, RewardsHaveTheLastGpuAloneWhereNobodyMustShareForIt) {
  const auto plan = [](int gpus, const std::string& ranks, const std::string& workers,
                       const std::string& servers = "1") {
    return PlanDevices(
        RunOn(gpus, {"batch.groups=840", kRewardsOnGpu, "learner.ranks=" + ranks,
                     "services.rollout_workers=" + workers, "services.reward_servers=" + servers}),
        gpus);
  };
  EXPECT_THAT(plan(8, "1", "6").rewards, ElementsAre(7));
  EXPECT_THAT(plan(8, "1", "6").workers, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(plan(8, "1", "5", "2").rewards, ElementsAre(7, 6));
  EXPECT_THAT(plan(8, "1", "7").workers, ElementsAre(1, 2, 3, 4, 5, 6, 7)) << "beside the last";
  EXPECT_THAT(plan(8, "1", "7").rewards, ElementsAre(7));
  EXPECT_THAT(plan(8, "8", "8").rewards, ElementsAre(7));
  EXPECT_THAT(plan(8, "6", "7").workers, ElementsAre(6, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(plan(8, "6", "7").rewards, ElementsAre(7));
  EXPECT_THAT(plan(2, "1", "1").rewards, ElementsAre(1)) << "not beside rank 0";
  EXPECT_THAT(plan(1, "1", "1").rewards, ElementsAre(0));
}

// Whatever the numbers are: each process has a GPU of the machine, and no GPU is idle while another
// one has two workers.
// Promise: Each process has a device that holds it. `oxbow train`, `validate` and `doctor` ask one
// plan which process takes which GPU. No GPU is idle while another one has two workers, and rewards
// are not beside rank 0 where there are two GPUs. Every recipe fits eight GPUs of 80 GiB, published
// networks counted by their shapes. A run that cannot fit is refused with the GPU, the sizes and
// the next setting that helps.
TEST(DevicePlanTest, ProcessesAreSpreadOverAllGpus) {
  for (int gpus = 1; gpus <= 8; ++gpus) {
    for (int ranks = 1; ranks <= gpus; ++ranks) {
      for (int workers = 0; workers <= 10; ++workers) {
        v1::RunConfig run;
        run.mutable_model()->set_device("cuda");
        run.mutable_learner()->set_ranks(static_cast<uint32_t>(ranks));
        run.mutable_services()->set_rollout_workers(static_cast<uint32_t>(workers));
        run.mutable_services()->set_reward_servers(1);
        run.mutable_reward()->add_scorers()->set_device("cuda");
        const DevicePlan plan = PlanDevices(run, gpus);
        std::multiset<int> taken(plan.workers.begin(), plan.workers.end());
        std::set<int> used(plan.ranks.begin(), plan.ranks.end());
        used.insert(plan.workers.begin(), plan.workers.end());
        used.insert(plan.rewards.begin(), plan.rewards.end());
        EXPECT_GE(*used.begin(), 0);
        EXPECT_LT(*used.rbegin(), gpus);
        if (ranks + workers >= gpus) {
          EXPECT_EQ(used.size(), static_cast<size_t>(gpus));
        }
        if (gpus > 1) {
          EXPECT_NE(plan.rewards[0], 0) << "beside rank 0";
        }
      }
    }
  }
}

}  // namespace
}  // namespace oxbow::config
