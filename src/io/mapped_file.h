// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory: its pages are read when they are looked at.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow::io {

class MappedFile {
 public:
  // kNotFound if there is no such file, kFailedPrecondition if `path` is not a regular file. The
  // file must keep its length while it is mapped: pages past a new end cannot be read.
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
};

}  // namespace oxbow::io
