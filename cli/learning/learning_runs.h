// SPDX-License-Identifier: Apache-2.0
// Trains the runs of a comparison as child processes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "cli/learning/learning_plan.h"

namespace oxbow::cli {

// Trains the runs that are not finished, each from its start, `jobs` at a time. Shows on stderr
// which run begins, and on a terminal how far those are that train. The first run that fails ends
// all: kInternal, with the name of its log.
absl::Status TrainUnfinished(const std::vector<LearningRun>& runs, uint32_t jobs);

}  // namespace oxbow::cli
