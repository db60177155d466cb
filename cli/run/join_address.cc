// SPDX-License-Identifier: Apache-2.0
#include "cli/run/join_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/listening_sockets.h"
#include "rpc/tls.h"

namespace oxbow::cli {
namespace {

constexpr int kPortMax = 65000;  // Reward servers take the ports behind it.

}  // namespace

absl::StatusOr<JoinAddress> ParseJoinAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  JoinAddress address;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 1 ||
      address.port > kPortMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen takes HOST:PORT, with a port from 1 to ", kPortMax, ": ", text));
  }
  address.host = text.substr(0, colon);
  if (address.host == "0.0.0.0" || address.host == "[::]" || address.host == "*") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen takes this machine's own address, which workers are told, not ", text));
  }
  return address;
}

int PortOf(const JoinAddress& address, FleetRole role, int number) {
  if (address.port == 0) return 0;
  switch (role) {
    case FleetRole::kLearner:
      return address.port;
    case FleetRole::kBuffer:
      return number == 0 ? address.port + 1 : 0;
    case FleetRole::kReward:
      return address.port + 2 + number;
    case FleetRole::kWorker:
      return 0;
  }
  return 0;
}

std::vector<std::string> AddressesOf(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  std::vector<std::string> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(info->ai_addr, info->ai_addrlen, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.push_back(text);
    }
  }
  freeaddrinfo(found);
  return addresses;
}

std::string LoopbackWarning(const std::string& host, NameLookup addresses_of) {
  const auto is_loopback = [](const std::string& address) {
    return rpc::IsLoopback(WithBrackets(absl::StrCat(address, ":0")));
  };
  if (is_loopback(host)) return "";  // As it was asked for.
  const std::vector<std::string> addresses = addresses_of(host);
  if (addresses.empty() || !std::all_of(addresses.begin(), addresses.end(), is_loopback)) return "";
  return absl::StrCat(host, " is ", addresses.front(),
                      " on this machine (/etc/hosts), where no other machine finds it; give "
                      "--listen an address of this machine (ip -brief address)");
}

std::string JoinLine(const std::string& learner, bool tls) {
  return absl::StrCat(
      "workers may join: rollout_worker --learner ", learner,
      tls ? " --tls-ca CA --tls-cert CERT --tls-key KEY (a worker's certificate)" : "");
}

}  // namespace oxbow::cli
