// Asks the processes of a run what `oxbow doctor` judges. Changes nothing.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/oncall/fleet_checks.h"

namespace oxbow::cli {

// By the learner's address alone: it tells where buffer and reward servers are.
FleetFacts AskFleet(const std::string& learner, absl::Duration timeout);

// By endpoints.json and config.resolved.yaml, which also say where metrics are and what the
// staleness budget is. kNotFound without endpoints.json.
absl::StatusOr<FleetFacts> AskFleetOfRun(const std::string& run_dir, absl::Duration timeout);

}  // namespace oxbow::cli
