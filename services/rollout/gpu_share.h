// SPDX-License-Identifier: Apache-2.0
// The GPUs of a machine that a `rollout_worker --gpus` takes, and how the command of each one's
// process follows from its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/parallel/rank_environment.h"

namespace oxbow::rollout {

// This process among those that Slurm started on the machine.
struct TaskOnNode {
  int index = 0;
  int tasks = 1;
  // Slurm gave each task GPUs of its own, and this process sees no others.
  bool bound = false;
};

// From SLURM_LOCALID, SLURM_NODEID, SLURM_STEP_TASKS_PER_NODE and SLURM_GPUS_PER_TASK; one task
// where they are not set or not understood.
TaskOnNode ReadSlurmTask(const parallel::EnvironmentLookup& lookup);

// The numbers of the GPUs to use of the `count` that this process sees: `asked` is "all" or a list
// such as "0,2". Of "all", tasks of one machine that see the same GPUs take turns: the first GPU is
// the first task's. kInvalidArgument for another text, a number twice and no GPU; kUnavailable for
// a GPU that is not there.
absl::StatusOr<std::vector<int>> GpusOf(const std::string& asked, int count,
                                        const TaskOnNode& task);

// The command of the process of one GPU, the `index`th of the list: `arguments` (without the
// program) with --device cuda:GPU in place of --gpus. A given port of --listen or --metrics-listen
// is that of index 0, and others count up from it; a given --id gets "-gpuN" behind it.
std::vector<std::string> ArgumentsOfGpu(const std::vector<std::string>& arguments, int gpu,
                                        int index);

}  // namespace oxbow::rollout
