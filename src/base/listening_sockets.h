// SPDX-License-Identifier: Apache-2.0
// HOST:PORT, and sockets that listen there, for every server of the project.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace oxbow {

struct ListeningSockets {
  std::vector<Descriptor> sockets;  // Non-blocking, one for each address of the host.
  int port = 0;
};

// Listens on all addresses of "HOST:PORT" or "[V6]:PORT", on one port; port 0: the system picks
// one. A wildcard (0.0.0.0, [::]) takes IPv4 and IPv6 where the machine has both. kUnavailable if
// no address can be bound, with the reason; kInvalidArgument without a port that is a number up to
// 65535.
absl::StatusOr<ListeningSockets> Listen(const std::string& address);

// HOST:PORT with brackets around an IPv6 address that has none: manifests put a pod's address,
// of whichever family, before a port. Other addresses are returned as they are.
std::string WithBrackets(const std::string& address);

}  // namespace oxbow
