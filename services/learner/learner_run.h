// SPDX-License-Identifier: Apache-2.0
// One run of the learner, from its resolved config to its final weights: makes the parts, connects
// them, runs the loop, and destroys them in order.
#pragma once

#include "absl/status/status.h"
#include "services/learner/run_options.h"

namespace oxbow::learner {

// OK when the run is complete, kExitStopped or kExitDrained (base/exit_code.h) when a rule or
// somebody (a stop signal, the Drain call) has ended it, else why it failed.
absl::Status RunLearner(RunOptions options);

}  // namespace oxbow::learner
