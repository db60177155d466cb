// SPDX-License-Identifier: Apache-2.0
// Whether a run fits a machine; `oxbow validate`, `train` and `doctor` ask this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/plan/process_table.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

// The GPUs of this machine.
Gpus GpusHere();

// "8x80": eight GPUs of 80 GiB each. kInvalidArgument.
absl::StatusOr<Gpus> ParseGpus(const std::string& text);

// The run's processes on a machine with these GPUs.
std::vector<ProcessRow> ProcessesOn(const Gpus& gpus, const v1::RunConfig& config,
                                    const run::ModelFacts& facts);

// Where the host of this machine, or a GPU, has less memory than `rows` take there. An error is a
// GPU that cannot hold it. `elsewhere`: the machine is another one, whose host is not known.
std::vector<config::Problem> CheckMemory(const v1::RunConfig& config,
                                         const std::vector<ProcessRow>& rows, const Gpus& gpus,
                                         bool elsewhere = false);

// Where a disk of this machine has less room than the run takes there. An error is one on which the
// run cannot come to its end.
std::vector<config::Problem> CheckDisks(const v1::RunConfig& config, const run::ModelFacts& facts);

// OK, or the first error of CheckMemory with its line; it ends a process with kExitOutOfMemory.
absl::Status FirstMemoryError(const std::vector<config::Problem>& problems,
                              const config::Provenance& provenance);

}  // namespace oxbow::cli
