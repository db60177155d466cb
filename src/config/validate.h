// SPDX-License-Identifier: Apache-2.0
// The rules that a resolved config must keep before anything starts, for example against deadlocks,
// empty batches and methods without a density. Pure; `oxbow validate` adds checks that need files.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

enum class Severity { kError, kWarning };

struct Problem {
  Severity severity = Severity::kError;
  std::string key;      // The dotted config key to change.
  std::string message;  // The fault and its remedy, in one line.
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;  // kNotFound: a file is missing.
};

// All problems of a config, in the order of the schema's sections. A run with an error must not
// start.
std::vector<Problem> Validate(const v1::RunConfig& config);

// "run.yaml:12: batch.groups: reason"; for a value that comes from no file, its source instead.
std::string ProblemLine(const Problem& problem, const Provenance& provenance);

// OK, or the first error's code with its line (and how many more there are).
absl::Status FirstError(const std::vector<Problem>& problems, const Provenance& provenance);

// Replayed groups of one learner step: round(fraction * groups).
uint32_t ReplayedGroups(const v1::RunConfig& config);

// Updates that a learner step may take: its passes over all samples, and those over replayed ones
// alone, of one update each.
uint64_t UpdatesPerStep(const v1::RunConfig& config);

// Whether the run offers its successes to the replay buffer, and reuses them in any form.
bool KeepsSuccesses(const v1::RunConfig& config);

// Whether the run has a use for a replay buffer: for its successes, or for the tables of its
// adaptation.
bool UsesReplayBuffer(const v1::RunConfig& config);

// Replay buffers that `oxbow train` starts.
uint32_t ReplayBuffersOf(const v1::RunConfig& config);

}  // namespace oxbow::config
