// SPDX-License-Identifier: Apache-2.0
// The lines of a UTF-8 text file, one at a time: a file of any size takes the memory of its longest
// line.
//
// A line ends with LF, CRLF or CR, as in Python's text mode; the last one need not. A byte order
// mark at the start is not part of the first line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace oxbow::io {

class TextLines {
 public:
  // kNotFound if `path` is no file that can be read.
  static absl::StatusOr<TextLines> Open(const std::filesystem::path& path, uint64_t line_bytes_max);

  // Puts the next line, without its end, into `line`; false after the last one. kInvalidArgument
  // "FILE:LINE: ..." for a line that is too long, not UTF-8 or holds a zero byte.
  absl::StatusOr<bool> Next(std::string& line);

  std::string place() const;  // "FILE:LINE" of the line that Next gave last.

 private:
  TextLines(std::FILE* file, std::string path, uint64_t line_bytes_max)
      : file_(file, &std::fclose), path_(std::move(path)), line_bytes_max_(line_bytes_max) {}

  bool Fill();  // False: the file has ended.
  absl::Status Check(std::string& line) const;

  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::string path_;
  uint64_t line_bytes_max_;
  std::string buffer_;
  size_t at_ = 0;              // In buffer_.
  bool after_return_ = false;  // A line feed that comes next belongs to the line before.
  int number_ = 0;             // The line that Next gave last, from 1.
};

bool IsUtf8(std::string_view text);

// Without white space at either end, as Unicode sees it: no-break and ideographic spaces too.
// Requires UTF-8.
std::string_view StripSpace(std::string_view text);

}  // namespace oxbow::io
