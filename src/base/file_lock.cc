// SPDX-License-Identifier: Apache-2.0
#include "base/file_lock.h"

#include <cerrno>

namespace oxbow {

LockOutcome TryLock(int file, int operation, LockFunction lock) {
  while (lock(file, operation | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return LockOutcome::kHeld;
    const bool none = errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
    return none ? LockOutcome::kNoLocks : LockOutcome::kError;
  }
  return LockOutcome::kLocked;
}

}  // namespace oxbow
