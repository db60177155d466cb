// SPDX-License-Identifier: Apache-2.0
// One run of the learner, from its resolved config to its final weights.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/parallel/c10d_ranks.h"
#include "oxbow/v1/config.pb.h"
#include "rpc/stop_signal.h"

namespace oxbow::learner {

// How long the calls of a rank's server may still take when the rank ends.
inline constexpr absl::Duration kShutdownGrace = absl::Milliseconds(300);

struct RunOptions {
  v1::RunConfig config;  // Resolved.
  std::filesystem::path directory;
  std::vector<std::string> buffer_endpoints;
  std::string take_buffer;  // The run whose buffer this run takes; empty: none.
  std::vector<std::string> reward_endpoints;
  std::string listen = "127.0.0.1:0";
  std::string metrics_listen = "127.0.0.1:0";
  // Go on from the newest checkpoint, or start where there is none.
  bool resume = false;
  // Begin another run although one of its name has copies of its checkpoints.
  bool beside_copies = false;
  // Go on although a reward is another than before.
  bool accept_reward_change = false;
  // `oxbow train` started this process and holds the lock of the run's directory.
  bool supervised = false;
  parallel::JoinOptions place;      // This rank among those of the learner.
  rpc::StopSignal* stop = nullptr;  // Takes the stop signals. Required.
  // Called when the run has ended, before the other ranks are told to go.
  std::function<void()> ending = [] {};
  // To be called before each change of the run's directory that lasts. An error: the directory is
  // another start's, and this process must end. RunLearner sets it.
  std::function<absl::Status()> check_directory = [] { return absl::OkStatus(); };
};

// OK when the run is complete, kExitStopped or kExitDrained (base/exit_code.h) when a rule or
// somebody (a stop signal, the Drain call) has ended it, else why it failed.
absl::Status RunLearner(RunOptions options);

}  // namespace oxbow::learner
