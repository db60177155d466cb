// SPDX-License-Identifier: Apache-2.0
// The lines of a file, the last one first. It holds one line in memory, whatever the file's size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace oxbow {

struct FileLine {
  std::string text;    // Without its newline.
  uint64_t begin = 0;  // Its first byte in the file.
  uint64_t end = 0;    // The first byte behind it and its newline.
  bool whole = true;   // It has its newline. Only the last line of a file may have none.
};

class LinesFromEnd {
 public:
  // kNotFound if the file does not exist.
  static absl::StatusOr<LinesFromEnd> Open(const std::filesystem::path& path);

  // The line before the one returned last; absent before the first line of the file. kDataLoss if a
  // line has more than 1 GiB.
  absl::StatusOr<std::optional<FileLine>> Next();

 private:
  LinesFromEnd(Descriptor file, std::string path, uint64_t size)
      : file_(std::move(file)), path_(std::move(path)), begin_(size) {}

  // Puts the block before `begin_` in front of `held_`.
  absl::Status ReadBlockBefore();

  Descriptor file_;
  std::string path_;
  std::string held_;  // Bytes from `begin_` on that were not returned yet.
  uint64_t begin_;
};

// Makes the file `size` bytes long.
absl::Status CutFile(const std::filesystem::path& path, uint64_t size);

}  // namespace oxbow
