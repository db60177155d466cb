// SPDX-License-Identifier: Apache-2.0
// `oxbow status`: shows what a live run is doing, as its learner reports it.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "oxbow/v1/coordinator.pb.h"

namespace oxbow::cli {

absl::StatusOr<v1::StatusResponse> AskStatus(const std::string& endpoint, absl::Duration timeout);

// Whether somebody answered, and refused the call.
bool IsRefusal(const absl::Status& status);
// Why the learner at that address has said nothing: nobody is there, or it refuses the call.
absl::Status NoStatus(const absl::Status& why, const std::string& learner);

// The status for people: a few lines and a table of workers. `steps_per_second` is a measured rate;
// without it, the learner's measurement of its last step is used.
std::string StatusText(const v1::StatusResponse& status,
                       std::optional<double> steps_per_second = std::nullopt);

// One JSON object on one line: the message, with metrics and time shares as objects.
std::string StatusJson(const v1::StatusResponse& status);

void AddStatus(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
