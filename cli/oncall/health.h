// SPDX-License-Identifier: Apache-2.0
// `oxbow health`: asks a service over grpc.health.v1, for probes and scripts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::cli {

// True if the server reports SERVING: it had a free thread for this call, and for its streams.
// `service` is a part of it, such as "oxbow.v1.Reward/pickscore"; "": all. kUnavailable if nothing
// listens at the address, kNotFound if it has no such part, another code if the call fails.
absl::StatusOr<bool> IsServing(const std::string& endpoint, absl::Duration timeout,
                               const std::string& service = "");

// 0 serving, 1 not serving, 2 nothing listens there, 3 the call failed.
int HealthExitCode(const absl::StatusOr<bool>& serving);

// Adds the flags of the health check to `command`, and its action after parsing.
void AskHealth(CLI::App& command, int& exit_code);
void AddHealth(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
