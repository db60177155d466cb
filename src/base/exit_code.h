// SPDX-License-Identifier: Apache-2.0
// The exit status of a process; the same for every binary (docs/formats.md).
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace oxbow {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,      // Any other error at run time.
  kExitUsage = 2,        // Bad flag or config, or a device that this machine has not.
  kExitUnavailable = 3,  // A peer or disk is not available.
  kExitData = 4,         // A model or data file is missing, corrupt or of the wrong shape.
  kExitFull = 5,         // A disk, a memory or another limit is full.
  kExitNotFinite = 6,    // A loss or a gradient is not finite.
  kExitOutOfMemory = 7,  // The computation does not fit into the memory of its device.
  kExitStopped = 8,      // A rule of run.stop_if has ended the run.
  kExitDrained = 9,  // Asked to stop, with steps left; the checkpoint of the last step is written.
  // The GPU answers each call with an error; only a new process may use it again.
  kExitDeviceLost = 10,
  kExitInterrupted = 130,
  kExitTerminated = 143,
};

// A failure's code in words: "a loss or a gradient is not finite".
const char* MeaningOf(int exit_code);

// kInvalidArgument, kUnimplemented: 2. kUnavailable, kDeadlineExceeded: 3. kNotFound, kDataLoss,
// kFailedPrecondition, kPermissionDenied: 4. kResourceExhausted: 5, of OutOfMemoryError: 7.
// kOutOfRange: 6. Of ErrorOf: what it was given. Others: 1.
int ExitCodeOf(const absl::Status& status);

// A status that ends this process with this exit code, from 1 to 10; kExitFailure for another one.
absl::Status ErrorOf(int exit_code, std::string_view message);

// Whether the process comes to an orderly end before its last step: kExitStopped, kExitDrained.
bool EndsEarly(const absl::Status& status);

// kResourceExhausted of a kind of its own: unlike a full disk, it does not pass.
absl::Status OutOfMemoryError(std::string_view message);
bool IsOutOfMemory(const absl::Status& status);

// ErrorOf of a device on which this process computes no more; IsDeviceError knows it again.
absl::Status DeviceError(int exit_code, std::string_view message);
bool IsDeviceError(const absl::Status& status);

// True if the same start would end the same way: a process with this code is not started again.
bool IsFinal(int exit_code);

}  // namespace oxbow
