// SPDX-License-Identifier: Apache-2.0
// The part of `oxbow validate` that looks at the disk and at this build: model directory, prompt
// files, names of rewards.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/validate.h"
#include "run/model_facts.h"

namespace oxbow::cli {

std::vector<config::Problem> CheckFiles(const v1::RunConfig& config);

// The problems of `oxbow train` with so many GPUs on this machine: a rank needs one, and so does a
// member of the broadcast group. Pure.
std::vector<config::Problem> CheckGpus(const v1::RunConfig& config, int gpus);

// Rules and files together.
std::vector<config::Problem> CheckRun(const v1::RunConfig& config);

// The same; where a part of the model without a graph is the only error, the exporter of graphs
// makes it first, DIRECTORY/graph.json.gz, if a Python here has it (tools/export_model): a line to
// `out` says so. `stopped` waits a moment for a stop signal, which ends it: the error of
// kExitDrained. kFailedPrecondition with the exporter's last words; nothing of the graph is there
// then.
absl::StatusOr<std::vector<config::Problem>> CheckRunWithGraphs(
    const v1::RunConfig& config, const std::vector<std::string>& environment,
    const std::function<bool()>& stopped, std::ostream& out);

// CheckRun for a machine that is not this one and has so many GPUs: devices of this one do not
// count.
std::vector<config::Problem> CheckRunOn(int gpus, const v1::RunConfig& config);

// The config with everything on the CPU, for checks of files alone.
v1::RunConfig WithoutDevices(v1::RunConfig config);

}  // namespace oxbow::cli
