// SPDX-License-Identifier: Apache-2.0
// `rollout_worker --gpus`: one process of this program for each GPU. This process starts them,
// passes stop signals on, starts again what dies, and ends when all have ended. They are one worker
// of one run: when one ends in order, the others are stopped 30 s later.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
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

// When the process of one GPU starts again. Pure: time comes in.
class Restarts {
 public:
  // It has started at this time.
  void Started(absl::Duration now) { started_ = now; }

  // It has ended with this exit code. When it is due again: after a pause that doubles from 1 s to
  // 10 min while another GPU's process lives `beside` it; never after an orderly end, and that of a
  // learner that stayed away. The last one that lives is not due, either, after an exit code that
  // the same start would have again, and after the fifth death in a row of less than a minute: a
  // new process on another machine may do better.
  absl::Duration DueAfter(int exit_code, absl::Duration now, bool beside);

 private:
  absl::Duration started_;
  int deaths_ = 0;
};

struct GpuProcess {
  std::string name;                    // "cuda:1"
  std::vector<std::string> arguments;  // Without the program.
};

// Runs until every process has ended for good. They die with this one, and inherit its output. OK
// if all ended in order; else an error with the exit code of the first that did not, which names
// it. Call from the main thread, with the stop signals blocked (rpc::BlockStopSignals).
absl::Status RunOnGpus(const std::vector<GpuProcess>& processes, const Clock& clock);

}  // namespace oxbow::rollout
