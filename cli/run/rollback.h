// SPDX-License-Identifier: Apache-2.0
// Checks whether a run has ended. Commands that change a run's directory call this first, because a
// live learner would continue from its memory and overwrite the change.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace oxbow::cli {

// OK only if the run has certainly ended: nothing listens at the learner's address, and the `oxbow
// train` process that started it is gone. `learner` ("host:port") is for runs that another program
// started and that have no endpoints.json; else empty. kFailedPrecondition gives the evidence
// against it, or what cannot be known. A call takes at most `timeout`.
absl::Status CheckEnded(const std::filesystem::path& run_dir, const std::string& learner,
                        absl::Duration timeout);

}  // namespace oxbow::cli
