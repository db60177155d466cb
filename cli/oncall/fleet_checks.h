// SPDX-License-Identifier: Apache-2.0
// Judges whether a running fleet is well, from what its processes report. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/oncall/checkup.h"
#include "oxbow/v1/coordinator.pb.h"
#include "oxbow/v1/replay_buffer.pb.h"

namespace oxbow::cli {

struct ServiceFacts {
  enum class State { kServing, kNotServing, kSilent, kRefused };
  std::string name;  // "learner", "reward_server-1"
  std::string endpoint;
  State state = State::kSilent;
  std::string why;  // Reason for kSilent and kRefused.
  // Its clock minus this machine's clock in the middle of the call, and the duration of the call.
  // The offset is accurate to half of that duration.
  std::optional<double> clock_offset_s;
  double round_trip_s = 0;
};

struct RewardCounts {
  std::string name;  // Name of the server.
  double scored = 0;
  double refused = 0;  // Failed or invalid.
};

struct FleetFacts {
  std::vector<ServiceFacts> services;  // All known services, the learner first.
  std::optional<v1::StatusResponse> status;
  std::vector<v1::InfoResponse> buffers;  // Those that answered.
  std::vector<RewardCounts> rewards;      // Those whose /metrics address is known.
  std::optional<uint64_t> staleness_max;  // S of the run, if its config is known.
  // How far on-policy ratios may be from 1. GPUs and merged adapters round; 0 if the config
  // excludes both. The same limit as in the alert OxbowRatioNotOne.
  double ratio_tolerance = 1e-4;
  // Processes that have died and that `oxbow train` starts again: name -> why and when.
  std::map<std::string, std::string> down;
};

Checks JudgeFleet(const FleetFacts& facts);

// Needs only the learner's address: the learner tells where buffer and reward servers are.
FleetFacts AskFleet(const std::string& learner, absl::Duration timeout);

// Reads endpoints.json and config.resolved.yaml, which also give the addresses of metrics and the
// staleness budget. kNotFound without endpoints.json.
absl::StatusOr<FleetFacts> AskFleetOfRun(const std::string& run_dir, absl::Duration timeout);

}  // namespace oxbow::cli
