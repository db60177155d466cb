// SPDX-License-Identifier: Apache-2.0
// A file written in pieces. A reader or a crash sees it complete or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace oxbow {

class AtomicFile {
 public:
  // Opens a temporary file beside `path`.
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

}  // namespace oxbow
