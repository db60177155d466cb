// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory: its pages are read when they are looked at.
//
// A page that cannot be read then, because another process has cut the file short or its disk is
// away, ends this process with one line that names the file: exit code 4 for a shorter file, 3 for
// a disk.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow::io {

class MappedFile {
 public:
  // kNotFound if there is no such file, kFailedPrecondition if `path` is not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return bytes_; }  // Stays in place when this is moved.

  // Takes the whole pages within `part` of bytes() out of this process's memory. They may be looked
  // at again, and are then read again.
  void Release(std::string_view part) const;

 private:
  MappedFile() = default;
  std::string_view bytes_;
  std::shared_ptr<const void> place_;  // Says whose the bytes are.
};

}  // namespace oxbow::io
