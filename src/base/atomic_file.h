// SPDX-License-Identifier: Apache-2.0
// A file written in pieces. A reader or a crash sees it complete or not at all.
//
// The temporary file is PATH.tmp.DIGITS, 16 random hexadecimal ones, and is made by one writer for
// itself: processes of other hosts and containers may write the same file at the same time, and
// the last one to commit has written it. A process that is killed leaves its temporary file behind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"

namespace oxbow {

class AtomicFile {
 public:
  // Makes a temporary file beside `path`.
  static absl::StatusOr<AtomicFile> Create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // Without Commit: removes the temporary file; `path` is unchanged.

  // kResourceExhausted when the disk is full.
  absl::Status Append(std::string_view bytes);

  // Fsyncs, renames to `path` and fsyncs the directory. Call it once.
  absl::Status Commit();

 private:
  AtomicFile(Descriptor descriptor, std::string temporary, std::filesystem::path path);

  Descriptor descriptor_;
  std::string temporary_;  // Empty after the file was committed or removed.
  std::filesystem::path path_;
};

// A name beside `path` that nobody else has, for what is renamed to `path` once it is whole.
std::filesystem::path TemporaryOf(const std::filesystem::path& path);

// How long a temporary file that nobody writes to is left alone: clocks of hosts differ.
inline constexpr absl::Duration kTemporaryKept = absl::Hours(24);

// Removes temporary files in `directory` that nobody has written to for kTemporaryKept.
void SweepTemporaries(const std::filesystem::path& directory);

}  // namespace oxbow
