// Which addresses of this machine the ranks use, so that local ranks never listen to the network.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace oxbow::parallel {

struct Listening {
  int socket;  // Owned by the caller.
  int port;
};

// A listening socket for those who connect to host:port; port 0 lets the system pick. On loopback
// when `host` is a loopback address, on all interfaces otherwise. kUnavailable if `host` is unknown
// or the port is taken.
absl::StatusOr<Listening> ListenFor(const std::string& host, int port);

// The numeric address of this machine from which `host` is reached, as the routing table says.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host);

}  // namespace oxbow::parallel
