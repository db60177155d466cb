// SPDX-License-Identifier: Apache-2.0
// Addresses of this machine that the ranks use, so that local ranks never listen to the network.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace oxbow::parallel {

struct Listening {
  int socket;  // Owned by the caller.
  int port;
};

// A socket that listens at host:port; port 0: the system chooses. It listens on loopback if `host`
// is a loopback address, on all interfaces otherwise. kUnavailable if `host` is unknown or the port
// is taken.
absl::StatusOr<Listening> ListenFor(const std::string& host, int port);

// The numeric address of this machine from which it reaches `host`, by the routing table.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

}  // namespace oxbow::parallel
