// SPDX-License-Identifier: Apache-2.0
// Why a call found nobody although something listens: gRPC says "Socket closed" of a port that
// speaks TLS, and names a function of OpenSSL where an authority is another.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace oxbow::rpc {

// One line on what keeps this process from speaking with what listens at `endpoint`: TLS on one
// side alone, or another authority. Empty if it is none of these, or nothing listens. Makes a
// connection of its own, and waits at most about `timeout` for each of its answers.
std::string WhyNotUnderstood(const std::string& endpoint, absl::Duration timeout);

// `status` of a call, with that line in place of its message if there is one. Asks only of
// kUnavailable.
absl::Status Explained(const absl::Status& status, const std::string& endpoint);

}  // namespace oxbow::rpc
