// SPDX-License-Identifier: Apache-2.0
// Where workers of other machines find a run: `oxbow train --listen HOST:PORT`.
//
//   PORT            learner
//   PORT + 1        replay buffer
//   PORT + 2 + i    reward server i
//
// Metrics and the workers that `oxbow train` starts take any port.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/run/supervisor.h"

namespace oxbow::cli {

struct JoinAddress {
  std::string host;  // With the brackets of an IPv6 address.
  int port = 0;      // 0: any.
};

// kInvalidArgument if the text is not HOST:PORT, or if HOST is an address at which nobody can be
// found, such as 0.0.0.0: workers are told it.
absl::StatusOr<JoinAddress> ParseJoinAddress(const std::string& text);

// The port of process `number` of a role; 0 means any.
int PortOf(const JoinAddress& address, Role role, int number);

// "workers may join: rollout_worker --learner 192.0.2.2:7070".
std::string JoinLine(const std::string& learner, bool tls);

}  // namespace oxbow::cli
