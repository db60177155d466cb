// SPDX-License-Identifier: Apache-2.0
// Where workers of other machines find a run: `oxbow train --listen HOST:PORT`.
//
//   PORT            learner
//   PORT + 1        replay buffer, or its first shard
//   PORT + 2 + i    reward server i
//
// Metrics, further shards and the workers that `oxbow train` starts take any port.
#pragma once

#include <string>
#include <vector>

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
int PortOf(const JoinAddress& address, FleetRole role, int number);

// Finds the numeric addresses of a host's name on this machine; none for a name that is not known.
using NameLookup = std::vector<std::string> (*)(const std::string& host);
std::vector<std::string> AddressesOf(const std::string& host);

// Why workers of other machines would not find `host`, a name that means this machine alone here,
// as the installers of some systems write it into /etc/hosts; empty if they may.
std::string LoopbackWarning(const std::string& host, NameLookup addresses_of = AddressesOf);

// "workers may join: rollout_worker --learner 192.0.2.2:7070".
std::string JoinLine(const std::string& learner, bool tls);

}  // namespace oxbow::cli
