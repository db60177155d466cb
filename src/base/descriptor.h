// SPDX-License-Identifier: Apache-2.0
// File descriptors: ownership, writing, and the status codes of their errors.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace oxbow {

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
