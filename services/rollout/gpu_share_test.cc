// SPDX-License-Identifier: Apache-2.0
// Each GPU of a machine is one process's, however many tasks share the machine.
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/rollout/gpu_processes.h"

namespace oxbow::rollout {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TaskOnNode TaskOf(const std::map<std::string, std::string>& environment) {
  return ReadSlurmTask([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

// Promise: A worker for each GPU. `rollout_worker --gpus` has one process on each GPU, and each GPU
// one process, also where tasks of Slurm share a machine. A process that dies comes again, for ever
// while another lives; the last one does not where the same start would end again. All end with the
// run, with SIGTERM, and with the first process.

TEST(GpuShareTest, OneProcessTakesAllItSeesOrThoseItNames) {
  EXPECT_THAT(*GpusOf("all", 3, {}), ElementsAre(0, 1, 2));
  EXPECT_THAT(*GpusOf("2,0", 3, {}), ElementsAre(2, 0));
  EXPECT_EQ(GpusOf("3", 3, {}).status().code(), absl::StatusCode::kUnavailable);
  for (const char* bad : {"", "one", "0,,1", "-1", "0,0", "all,1"}) {
    EXPECT_EQ(GpusOf(bad, 3, {}).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_THAT(GpusOf("all", 0, {}).status().message(), HasSubstr("no GPU"));
}

TEST(GpuShareTest, TasksOfOneMachineDivideItsGpus) {
  for (int count = 1; count <= 9; ++count) {
    for (int tasks = 1; tasks <= 9; ++tasks) {
      std::map<int, int> users;
      for (int index = 0; index < tasks; ++index) {
        const auto gpus = *GpusOf("all", count, {.index = index, .tasks = tasks});
        EXPECT_FALSE(gpus.empty());
        for (const int gpu : gpus) ++users[gpu];
      }
      EXPECT_EQ(users.size(), static_cast<size_t>(count)) << tasks << " tasks";
      for (const auto& [gpu, of_it] : users) {
        EXPECT_LE(of_it, (tasks + count - 1) / count) << gpu << " of " << count << ", " << tasks;
      }
    }
  }
  EXPECT_THAT(*GpusOf("all", 2, {.index = 3, .tasks = 4, .bound = true}), ElementsAre(0, 1));
}

TEST(GpuShareTest, SlurmSaysWhichTaskThisIs) {
  EXPECT_EQ(TaskOf({}).tasks, 1);
  const TaskOnNode third = TaskOf(
      {{"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2),2"}});
  EXPECT_EQ(third.index, 1);
  EXPECT_EQ(third.tasks, 2);
  EXPECT_FALSE(third.bound);
  EXPECT_TRUE(TaskOf({{"SLURM_LOCALID", "0"}, {"SLURM_GPUS_PER_TASK", "2"}}).bound);
  for (const char* strange : {"", "x", "4(x", "99999999999", "1(x2)(x3)"}) {
    const TaskOnNode task =
        TaskOf({{"SLURM_LOCALID", "3"}, {"SLURM_STEP_TASKS_PER_NODE", strange}});
    EXPECT_EQ(task.tasks, 4) << strange;
  }
}

TEST(GpuShareTest, AProcessOfAGpuHasItsOwnPortsIdAndDevice) {
  EXPECT_THAT(ArgumentsOfGpu({"--learner", "h:7070", "--gpus", "all", "--id=node-a", "--listen",
                              "10.0.0.2:7073", "--metrics-listen=[::1]:9467", "--plaintext"},
                             /*gpu=*/5, /*index=*/2),
              ElementsAre("--learner", "h:7070", "--id", "node-a-gpu5", "--listen", "10.0.0.2:7075",
                          "--metrics-listen", "[::1]:9469", "--plaintext", "--device", "cuda:5"));
  EXPECT_THAT(ArgumentsOfGpu({"--gpus=0,5", "--learner=h:1", "--listen", "0.0.0.0:0"}, 5, 1),
              ElementsAre("--learner=h:1", "--listen", "0.0.0.0:0", "--device", "cuda:5"));
}

}  // namespace
}  // namespace oxbow::rollout
