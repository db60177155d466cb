// SPDX-License-Identifier: Apache-2.0
// Asks the servers of reward.endpoints which rewards they have, before a run needs them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

inline constexpr absl::Duration kEndpointPatience = absl::Seconds(2);

struct AskedEndpoint {
  std::string endpoint;
  absl::Status status;               // The status of its answer to Describe.
  std::vector<std::string> rewards;  // That it has.
};

// Asks all of them side by side, each for at most `timeout`.
std::vector<AskedEndpoint> AskEndpoints(const v1::RewardConfig& config, absl::Duration timeout);

// Servers that do not answer, for which a run waits: warnings. Where all answer, the rewards of the
// run that none of them has and that are not the run's own: errors, since a run ends by them.
std::vector<config::Problem> EndpointProblems(const v1::RewardConfig& config,
                                              const std::vector<AskedEndpoint>& asked);

}  // namespace oxbow::cli
