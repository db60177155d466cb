// One run of the learner, from its resolved config to its final weights: makes the parts, connects
// them, runs the loop, and destroys them in order.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/parallel/c10d_ranks.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

struct RunOptions {
  v1::RunConfig config;  // Resolved.
  std::filesystem::path directory;
  std::vector<std::string> buffer_endpoints;
  std::vector<std::string> reward_endpoints;
  std::string listen = "127.0.0.1:0";
  std::string metrics_listen = "127.0.0.1:0";
  bool resume = false;          // From the newest checkpoint, or from the start if there is none.
  parallel::JoinOptions place;  // This rank's place among the learner's ranks.
  // Called when the run has ended, before the other ranks are told to stop.
  std::function<void()> ending = [] {};
};

// Returns when the run is complete, was drained (by a stop signal or the Drain call), or failed.
// Requires an earlier call of BlockStopSignals.
absl::Status RunLearner(RunOptions options);

}  // namespace oxbow::learner
