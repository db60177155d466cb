// Has a run ended? What changes a run's directory asks before it does: a learner that lives would
// go on from what it has in memory and write over it.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace oxbow::cli {

// OK only where that is sure: nobody listens where the learner was, and the `oxbow train` that
// started it is no more. `learner` ("host:port") is for runs that something else started, which
// leave no endpoints.json; else empty. kFailedPrecondition says what speaks against it, or what
// cannot be known. A call takes `timeout` at most.
absl::Status CheckEnded(const std::filesystem::path& run_dir, const std::string& learner,
                        absl::Duration timeout);

}  // namespace oxbow::cli
