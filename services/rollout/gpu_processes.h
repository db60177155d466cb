// SPDX-License-Identifier: Apache-2.0
// `rollout_worker --gpus`: one process of this program for each GPU. This process starts them,
// passes stop signals on, starts again what dies, and ends when all have ended. They are one worker
// of one run: when one ends in order, the others are stopped 30 s later.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace oxbow::rollout {

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
