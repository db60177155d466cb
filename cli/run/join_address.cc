// SPDX-License-Identifier: Apache-2.0
#include "cli/run/join_address.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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

int PortOf(const JoinAddress& address, Role role, int number) {
  if (address.port == 0) return 0;
  switch (role) {
    case Role::kLearner:
      return address.port;
    case Role::kBuffer:
      return address.port + 1;
    case Role::kReward:
      return address.port + 2 + number;
    case Role::kWorker:
      return 0;
  }
  return 0;
}

std::string JoinLine(const std::string& learner, bool tls) {
  return absl::StrCat(
      "workers may join: rollout_worker --learner ", learner,
      tls ? " --tls-ca CA --tls-cert CERT --tls-key KEY (a worker's certificate)" : "");
}

}  // namespace oxbow::cli
