// SPDX-License-Identifier: Apache-2.0
// Asks the processes of a run for the facts that `oxbow doctor` judges. Changes nothing.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/oncall/fleet_checks.h"

namespace oxbow::cli {

// Needs only the learner's address: the learner tells where buffer and reward servers are.
FleetFacts AskFleet(const std::string& learner, absl::Duration timeout);

// Reads endpoints.json and config.resolved.yaml, which also give the addresses of metrics and the
// staleness budget. kNotFound without endpoints.json.
absl::StatusOr<FleetFacts> AskFleetOfRun(const std::string& run_dir, absl::Duration timeout);

}  // namespace oxbow::cli
