// SPDX-License-Identifier: Apache-2.0
// The kernel's lock of a whole file, which ends with its process, and file systems without any:
// Lustre without the mount option `flock`, some network and user-space file systems.
#pragma once

#include <sys/file.h>

namespace oxbow {

// flock, or what stands for it in a test.
using LockFunction = int (*)(int file, int operation);

enum class LockOutcome {
  kLocked,
  kHeld,     // By another process.
  kNoLocks,  // The file system has none: who comes here is not kept out, and is not known either.
  kError,    // errno says which.
};

// Tries to lock the open `file`, once. `operation` is LOCK_EX or LOCK_SH.
LockOutcome TryLock(int file, int operation, LockFunction lock = ::flock);

}  // namespace oxbow
