// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/gpu_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/run_config.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kOneMillion = 1'000'000;

v1::RunConfig RunWith(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), "recipe=digits-op-grpo");
  const auto resolved = config::LoadRunConfig({}, overrides, {});
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved->config;
}

run::ModelFacts TinyModel() {
  return {.transformer_parameters = 10 * kOneMillion,
          .trained_parameters = 10 * kOneMillion,
          .schedule = {.shift = 3},
          .latent_shape = {1, 8, 20}};
}

uint64_t RankOf(const v1::RunConfig& run) { return DevicePeakOf(LearnerMemory(run, TinyModel())); }
uint64_t WorkerOf(const v1::RunConfig& run) { return DevicePeakOf(WorkerMemory(run, TinyModel())); }

TEST(GpuLoadTest, WorkersTakeTheGpusBehindTheRanksAndThenTheFirstOnes) {
  const v1::RunConfig run =
      RunWith({"model.device=cuda", "learner.ranks=2", "services.rollout_workers=3"});
  const auto loads = LoadOfGpus(run, TinyModel(), {{"cpu", 7}, {"cuda:3", 5}}, 4);
  ASSERT_EQ(loads.size(), 4u);
  for (const int gpu : {0, 1}) EXPECT_EQ(loads.at(gpu).ranks, 1u);
  EXPECT_EQ(loads.at(0).workers, 1u) << "the third of three, on the GPU of rank 0";
  EXPECT_EQ(loads.at(0).bytes(), RankOf(run) + WorkerOf(run));
  EXPECT_EQ(loads.at(1).bytes(), RankOf(run));
  EXPECT_EQ(loads.at(2).bytes(), WorkerOf(run));
  EXPECT_EQ(loads.at(3).bytes(), WorkerOf(run) + 5);
}

TEST(GpuLoadTest, ADeviceWithANumberIsThatGpuForAll) {
  const v1::RunConfig run = RunWith({"model.device=cuda:1", "services.rollout_workers=2"});
  const auto loads = LoadOfGpus(run, TinyModel(), {{"cuda", 3}}, 4);
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads.at(0).bytes(), 3u);
  EXPECT_EQ(loads.at(1).bytes(), RankOf(run) + 2 * WorkerOf(run));
  EXPECT_THAT(LoadOfGpus(RunWith({"model.device=cpu"}), TinyModel(), {{"cpu", 3}}, 4), IsEmpty());
}

TEST(GpuLoadTest, WhatDoesNotFitIsNamedWithTheSettingThatHelps) {
  const v1::RunConfig run = RunWith({"model.device=cuda", "services.rollout_workers=1"});
  const uint64_t rank = RankOf(run), worker = WorkerOf(run);
  const auto check = [&](uint64_t bytes, int count, const BytesOfDevices& rewards = {}) {
    return CheckGpuLoad(run, TinyModel(), rewards, {.count = count, .bytes = bytes});
  };
  EXPECT_FALSE(check(0, 1).has_value()) << "not known";
  EXPECT_FALSE(check(rank + worker, 1).has_value());
  EXPECT_FALSE(check(std::max(rank, worker), 2).has_value()) << "each has a GPU of its own";

  const auto alone = check(rank - 1, 2);
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(alone->severity, config::Severity::kWarning);
  EXPECT_EQ(alone->key, "batch.rows_per_pass");
  EXPECT_THAT(alone->message,
              AllOf(HasSubstr("on cuda:0 a learner rank takes"), Not(HasSubstr("worker takes"))));

  const auto together = check(rank + worker - 1, 1);
  ASSERT_TRUE(together.has_value());
  EXPECT_EQ(together->key, "services.rollout_workers");
  EXPECT_THAT(together->message,
              AllOf(HasSubstr("a learner rank takes"), HasSubstr("a rollout worker takes")));

  const auto rewards = check(rank + worker, 1, {{"cuda:0", 5}});
  ASSERT_TRUE(rewards.has_value());
  EXPECT_EQ(rewards->key, "reward.scorers");
  EXPECT_THAT(rewards->message, HasSubstr("rewards take 5 B"));
}

TEST(GpuLoadTest, RewardsOnAGpuBesideAModelOnTheHostAreLookedAtToo) {
  const v1::RunConfig run = RunWith({"model.device=cpu"});
  const BytesOfDevices rewards = {{"cuda:1", kOneMillion}};
  EXPECT_TRUE(CheckGpuLoad(run, TinyModel(), rewards, {2, kOneMillion - 1}).has_value());
  EXPECT_FALSE(CheckGpuLoad(run, TinyModel(), rewards, {2, kOneMillion}).has_value());
}

}  // namespace
}  // namespace oxbow::cli
