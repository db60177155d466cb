// SPDX-License-Identifier: Apache-2.0
// Faults that can happen to a running process from outside, and how each is taken back.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::chaos {

// Ends a fault; empty for what cannot be taken back. Call it in the thread that began the fault.
using TakeBack = std::function<absl::Status()>;

// kNotFound where the process, or the thread, is gone; kPermissionDenied where it is not allowed.

// SIGSTOP, and SIGCONT later.
absl::StatusOr<TakeBack> StopProcess(pid_t process);

// Sets the soft limit of open descriptors to the lowest number that is free: no file can be opened
// and no connection made or accepted, while open ones go on. Then the limit is as it was.
absl::StatusOr<TakeBack> TakeDescriptors(pid_t process);

// Lets the process have hardly more private memory than it has. Then the limit is as it was.
absl::StatusOr<TakeBack> TakeMemory(pid_t process);

// Stops the oldest thread of this name (threads inherit the name of the one that starts them), as a
// device that does not answer does; the other threads go on.
absl::StatusOr<TakeBack> HangThread(pid_t process, const std::string& name);

}  // namespace oxbow::chaos
