// SPDX-License-Identifier: Apache-2.0
// File descriptors: ownership, writing, and the status codes of their errors.
#pragma once

#include <sys/file.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace oxbow {

// The kernel's lock of a whole file, which ends with its process, and file systems without any:
// Lustre without the mount option `flock`, some network and user-space file systems.
//
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

// Closes the descriptor when it leaves scope; -1 is none.
struct Descriptor {
  Descriptor() = default;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int value = -1;
};

// "WHAT: strerror: PATH". kNotFound, kResourceExhausted (disk full, no descriptors), kUnavailable
// (what may pass by itself: an I/O error, a stale handle of a network file system, no memory),
// kPermissionDenied or kInternal.
absl::Status ErrnoStatus(const char* what, const std::string& path, int error);

// Writes all of `bytes`, however many calls it takes. `path` is for the message.
absl::Status WriteAll(int descriptor, std::string_view bytes, const std::string& path);

// Makes renames and new names in `directory` durable.
absl::Status SyncDirectory(const std::filesystem::path& directory);

}  // namespace oxbow
