// SPDX-License-Identifier: Apache-2.0
// Where the costs of a simulated run come from: a preset, a file, or the metrics of a real run.
//
// A cost file is {"costs": {"group_s": 0.02, ...}} with the names of simulate::CostFields(); what
// it does not name keeps its value.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "oxbow/v1/config.pb.h"
#include "simulate/run_model.h"

namespace oxbow::cli {

// Sets the costs that `json` names. kInvalidArgument names what is unknown or no number.
absl::Status ReadCosts(const std::string& json, simulate::Costs& costs);
absl::Status ReadCostsFile(const std::filesystem::path& path, simulate::Costs& costs);

// Sets one cost, "NAME=VALUE".
absl::Status SetCost(const std::string& assignment, simulate::Costs& costs);

std::string CostsJson(const simulate::Costs& costs);

// The preset's model with weight fan-out, lease time and stragglers' rule as a run has them by
// default (configs/defaults.yaml).
absl::StatusOr<simulate::RunModel> ModelOfPreset(const simulate::Preset& preset);

// The batch, staleness and lease settings of a run, without costs.
simulate::RunModel RunModelOf(const v1::RunConfig& config);

struct MeasuredRun {
  simulate::RunModel model;  // U, G, S, v and the rest as the run had them; costs as measured.
  double step_s = 0;         // Mean over the steps measured.
  double update_share = 0;   // Share of step_s that updates take.
  int steps = 0;
};

// Reads RUN_DIR/config.resolved.yaml and metrics.jsonl; the first `warm_up` steps are left out.
// Update time is taken as proportional to the groups, sampling time as a line in the groups of a
// batch if batches differed, weights and leases together as what is left of the time between
// publication and the last group (apply_s; only where S = 0 and v = 1 show it). The network is not
// measured. kNotFound without the files, kFailedPrecondition with too few steps.
absl::StatusOr<MeasuredRun> MeasureRun(const std::filesystem::path& run_dir, int warm_up = 5);

}  // namespace oxbow::cli
