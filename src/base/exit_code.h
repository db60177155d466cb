// The exit status of a process; the same for every binary (docs/formats.md).
#pragma once

#include "absl/status/status.h"

namespace oxbow {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,      // Any other error at run time.
  kExitUsage = 2,        // Bad flag or config.
  kExitUnavailable = 3,  // A peer, disk or device is not available.
  kExitData = 4,         // A model or data file is missing, corrupt or of the wrong shape.
  kExitInterrupted = 130,
  kExitTerminated = 143,
};

// kInvalidArgument: 2. kUnavailable, kDeadlineExceeded, kResourceExhausted: 3. kNotFound,
// kDataLoss, kFailedPrecondition, kPermissionDenied: 4. Others: 1.
int ExitCodeOf(const absl::Status& status);

}  // namespace oxbow
