// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/machine_load.h"

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

run::ModelFacts Model() {
  return {.transformer_parameters = 1000 * kOneMillion,
          .trained_parameters = 1000 * kOneMillion,
          .schedule = {.shift = 3},
          .latent_shape = {1, 8, 20}};
}

std::vector<ProcessRow> Rows(const v1::RunConfig& run, const BytesOfDevices& rewards, int gpus) {
  return ProcessRows(run, Model(), rewards, gpus);
}

uint64_t RankOf(const v1::RunConfig& run) {
  return DevicePeakOf(LearnerMemory(run, Model())) + kGpuContextBytes;
}
uint64_t WorkerOf(const v1::RunConfig& run) {
  return DevicePeakOf(WorkerMemory(run, Model())) + kGpuContextBytes;
}

TEST(MachineLoadTest, EachProcessCountsWhereItIs) {
  const v1::RunConfig run = RunWith(
      {"model.device=cuda", "learner.ranks=2", "services.rollout_workers=3", "batch.groups=8"});
  const auto loads = LoadOfGpus(Rows(run, {{"cpu", 7}, {"cuda:3", 5}}, 4));
  ASSERT_EQ(loads.size(), 4u);
  for (const int gpu : {0, 1}) EXPECT_EQ(loads.at(gpu).ranks, 1u);
  EXPECT_EQ(loads.at(0).workers, 1u) << "the third of three, on the GPU of rank 0";
  EXPECT_EQ(loads.at(0).bytes(), RankOf(run) + WorkerOf(run));
  EXPECT_EQ(loads.at(1).bytes(), RankOf(run));
  EXPECT_EQ(loads.at(2).bytes(), WorkerOf(run));
  EXPECT_EQ(loads.at(3).bytes(), WorkerOf(run) + 5 + kGpuContextBytes);
}

TEST(MachineLoadTest, ADeviceWithANumberIsThatGpuForAll) {
  const v1::RunConfig run = RunWith({"model.device=cuda:1", "services.rollout_workers=2"});
  const auto loads = LoadOfGpus(Rows(run, {{"cuda", 3}}, 4));
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads.at(3).bytes(), 3u + kGpuContextBytes) << "rewards take the last one";
  EXPECT_EQ(loads.at(1).bytes(), RankOf(run) + 2 * WorkerOf(run));
  EXPECT_THAT(LoadOfGpus(Rows(RunWith({"model.device=cpu"}), {{"cpu", 3}}, 4)), IsEmpty());
}

// Promise: Each process has a device that holds it.
TEST(MachineLoadTest, WhatCannotFitIsRefusedWithTheSettingThatHelps) {
  const v1::RunConfig run = RunWith({"model.device=cuda", "services.rollout_workers=1"});
  const uint64_t rank = RankOf(run), worker = WorkerOf(run);
  const auto check = [&](uint64_t bytes, int count, const BytesOfDevices& rewards = {}) {
    return CheckGpuLoad(run, Rows(run, rewards, count), {.count = count, .bytes = bytes});
  };
  EXPECT_FALSE(check(0, 1).has_value()) << "not known";
  EXPECT_FALSE(check(rank + worker, 1).has_value());
  EXPECT_FALSE(check(std::max(rank, worker), 2).has_value()) << "each has a GPU of its own";

  const auto alone = check(rank - 1, 2);
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(alone->severity, config::Severity::kWarning) << "by less than the plan may be wrong";
  EXPECT_EQ(alone->key, "model.memory");
  EXPECT_THAT(alone->message, HasSubstr(": add recompute, or lower"));
  EXPECT_THAT(alone->message,
              AllOf(HasSubstr("on cuda:0 a learner rank takes"), Not(HasSubstr("worker takes"))));
  EXPECT_EQ(check(rank * 4 / 5, 2)->severity, config::Severity::kError);

  const auto together = check(rank + worker - 1, 1);
  ASSERT_TRUE(together.has_value());
  EXPECT_EQ(together->key, "services.rollout_workers");
  EXPECT_THAT(together->message,
              AllOf(HasSubstr("a learner rank takes"), HasSubstr("a rollout worker takes")));

  const auto rewards = check(rank + worker, 1, {{"cuda:0", kOneMillion}});
  ASSERT_TRUE(rewards.has_value());
  EXPECT_EQ(rewards->key, "reward.scorers");
  EXPECT_THAT(rewards->message, HasSubstr("rewards take 513.0 MiB"));
}

// Each key that is named is not set yet, down to the last means.
TEST(MachineLoadTest, ARankThatIsTooLargeIsToldTheNextMeans) {
  std::vector<std::string> set = {"model.device=cuda", "learner.ranks=2", "batch.groups=8"};
  std::vector<std::string> told;
  std::string memory;
  for (int i = 0; i < 8; ++i) {
    const v1::RunConfig run = RunWith(set);
    const auto problem = CheckGpuLoad(run, Rows(run, {}, 8), {.count = 8, .bytes = 1});
    ASSERT_TRUE(problem.has_value());
    if (problem->key == "batch.rows_per_pass") break;
    const size_t at = problem->message.rfind(": add ");
    if (at == std::string::npos) {
      told.push_back(problem->key);
      set.push_back(problem->key + "=bf16");
      continue;
    }
    const size_t end = problem->message.find(", or lower", at);
    told.push_back(problem->message.substr(at + 6, end - at - 6));
    memory += (memory.empty() ? "" : " + ") + told.back();
    set.push_back("model.memory=" + memory);
  }
  EXPECT_THAT(told,
              ::testing::ElementsAre("recompute", "model.compute_dtype", "shard_gradients",
                                     "offload_optimizer", "offload_average", "offload_weights"));
}

TEST(MachineLoadTest, RewardsOnAGpuBesideAModelOnTheHostAreLookedAtToo) {
  const v1::RunConfig run = RunWith({"model.device=cpu"});
  const auto rows = Rows(run, {{"cuda:1", kOneMillion}}, 2);
  const uint64_t held = kOneMillion + kGpuContextBytes;
  EXPECT_TRUE(CheckGpuLoad(run, rows, {2, held - 1}).has_value());
  EXPECT_FALSE(CheckGpuLoad(run, rows, {2, held}).has_value());
}

TEST(MachineLoadTest, WorkersOffloadWhereTheLearnerDoes) {
  const auto worker = [](const std::string& memory) {
    const v1::RunConfig run =
        RunWith({"model.device=cuda", "ema.enabled=false", "model.memory=" + memory});
    return Rows(run, {}, 2)[1].gpu_bytes;
  };
  EXPECT_LT(worker("recompute + offload_weights"), worker("recompute") - 3000 * kOneMillion);
}

// A LoRA's frozen weights, which a rank and the workers on its GPU have there once.
TEST(MachineLoadTest, ABaseCountsOnceOnAGpu) {
  run::ModelFacts facts = Model();
  facts.trained_parameters = 10 * kOneMillion;
  const auto worker = [&](std::vector<std::string> set, size_t number) {
    set.insert(set.end(), {"model.trained=lora", "services.rollout_workers=2"});
    return ProcessRows(RunWith(set), facts, {}, 2)[1 + number].gpu_bytes;
  };
  const uint64_t base = 4 * facts.transformer_parameters;
  const uint64_t apart = worker({"model.device=cuda"}, 0);
  EXPECT_GT(apart, base) << "no rank is on its GPU";
  EXPECT_EQ(worker({"model.device=cuda"}, 1), apart - base) << "beside rank 0";
  for (const size_t number : {0, 1}) {
    EXPECT_EQ(worker({"model.device=cuda:1"}, number), apart - base) << "all are on that GPU";
  }
  const uint64_t merged = worker({"model.device=cuda:1", "model.lora.merge_for_rollouts=true"}, 0);
  EXPECT_LT(merged, apart) << "merged weights are copies";
  EXPECT_EQ(worker({"model.device=cuda", "model.memory=recompute + int8"}, 1),
            worker({"model.device=cuda", "model.memory=recompute + int8"}, 0))
      << "an int8 base is not lent";
}

TEST(MachineLoadTest, MoreMemoryThanTheHostHasIsSaid) {
  const v1::RunConfig run = RunWith({});
  const uint64_t needed = HostBytes(Rows(run, {}, 0));
  EXPECT_GT(HostBytes(Rows(RunWith({"services.rollout_workers=4"}), {}, 0)), needed);
  EXPECT_LT(HostBytes(Rows(RunWith({"model.device=cuda"}), {}, 1)), needed) << "on the GPU";
  EXPECT_FALSE(CheckHostMemory(Rows(run, {}, 0), needed).has_value());
  const auto problem = CheckHostMemory(Rows(run, {}, 0), needed - 1);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->severity, config::Severity::kWarning);
  EXPECT_FALSE(CheckHostMemory(Rows(run, {}, 0), 0).has_value()) << "not known";
  EXPECT_TRUE(CheckHostMemory(Rows(run, {{"cpu", 1}}, 0), needed).has_value());
  EXPECT_FALSE(CheckHostMemory(Rows(run, {{"cuda:0", kOneMillion}}, 1), needed).has_value());
}

TEST(ProcessTableTest, ProcessesThatAreAlikeShareALine) {
  const Gpus gpus = {.count = 4, .bytes = uint64_t{80} << 30};
  constexpr uint64_t kGib = uint64_t{1} << 30;
  std::vector<ProcessRow> rows;
  for (int i = 0; i < 3; ++i) rows.push_back({ProcessKind::kRank, i, i, 20 * kGib, kGib});
  rows.push_back({ProcessKind::kWorker, 0, 3, 9 * kGib, kGib});
  rows.push_back({ProcessKind::kWorker, 1, 0, 9 * kGib, kGib});
  rows.push_back({ProcessKind::kReward, 0, 3, 4 * kGib, kGib});
  rows.push_back({ProcessKind::kBuffer, 0, -1, 0, kGib});
  EXPECT_EQ(ProcessTable(rows, gpus),
            "process                device     memory          and on the host\n"
            "learner ranks 0-2      cuda:0-2   20.0 GiB each   1.0 GiB each\n"
            "rollout worker 0       cuda:3     9.0 GiB         1.0 GiB\n"
            "rollout worker 1       cuda:0     9.0 GiB         1.0 GiB\n"
            "reward server 0        cuda:3     4.0 GiB         1.0 GiB\n"
            "replay buffer 0        cpu        1.0 GiB\n"
            "  together there       cuda:0     29.0 GiB of 80.0 GiB\n"
            "  together there       cuda:1-2   20.0 GiB of 80.0 GiB\n"
            "  together there       cuda:3     13.0 GiB of 80.0 GiB\n");
}

TEST(ProcessTableTest, WithoutAGpuAllIsOnTheHost) {
  EXPECT_EQ(ProcessTable({{ProcessKind::kRank, 0, -1, 0, 3},
                          {ProcessKind::kWorker, 0, -1, 0, 2},
                          {ProcessKind::kWorker, 1, -1, 0, 2}},
                         {}),
            "process                device     memory\n"
            "learner rank 0         cpu        3 B\n"
            "rollout workers 0-1    cpu        2 B each\n");
}

}  // namespace
}  // namespace oxbow::cli
