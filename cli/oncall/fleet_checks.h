// Is a running fleet well? What its processes say of themselves in, verdicts out. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/oncall/checkup.h"
#include "oxbow/v1/coordinator.pb.h"
#include "oxbow/v1/replay_buffer.pb.h"

namespace oxbow::cli {

struct ServiceFacts {
  enum class State { kServing, kNotServing, kSilent };
  std::string name;  // "learner", "reward_server-1"
  std::string endpoint;
  State state = State::kSilent;
  std::string why;  // Of kSilent.
  // Its clock minus this machine's in the middle of the call, and how long the call took: the
  // offset is known to half of that.
  std::optional<double> clock_offset_s;
  double round_trip_s = 0;
};

struct RewardCounts {
  std::string name;  // Of the server.
  double scored = 0;
  double refused = 0;  // Failed or invalid.
};

struct FleetFacts {
  std::vector<ServiceFacts> services;  // All that are known, the learner first.
  std::optional<v1::StatusResponse> status;
  std::vector<v1::InfoResponse> buffers;  // Of those that answered.
  std::vector<RewardCounts> rewards;      // Of those whose /metrics are known.
  std::optional<uint64_t> staleness_max;  // S of the run, where its config is known.
  // How far on-policy ratios may be from 1. GPUs and merged adapters round; where the config says
  // that nothing does, 0. As the alert OxbowRatioNotOne.
  double ratio_tolerance = 1e-4;
};

Checks JudgeFleet(const FleetFacts& facts);

}  // namespace oxbow::cli
