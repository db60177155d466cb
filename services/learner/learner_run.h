// SPDX-License-Identifier: Apache-2.0
// One run of the learner, from its resolved config to its final weights: makes the parts, connects
// them, runs the loop, and destroys them in order.
#pragma once

#include "absl/status/status.h"
#include "services/learner/run_options.h"

namespace oxbow::learner {

// Returns when the run is complete, was drained (by a stop signal or the Drain call), or failed.
// Requires an earlier call of BlockStopSignals.
absl::Status RunLearner(RunOptions options);

}  // namespace oxbow::learner
