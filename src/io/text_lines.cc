// SPDX-License-Identifier: Apache-2.0
#include "io/text_lines.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr size_t kBufferBytes = 1 << 16;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool IsSpace(UChar32 c) {
  return u_isUWhiteSpace(c) != 0 || (c >= 0x1c && c <= 0x1f);  // The latter as in Python.
}

}  // namespace

absl::StatusOr<TextLines> TextLines::Open(const std::filesystem::path& path,
                                          uint64_t line_bytes_max) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(path, error);
  std::FILE* const file = directory ? nullptr : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "cannot be read: ", directory ? "a directory" : std::strerror(errno), ": ", path.string()));
  }
  return TextLines(file, path.string(), line_bytes_max);
}

std::string TextLines::place() const { return absl::StrCat(path_, ":", number_); }

bool TextLines::Fill() {
  buffer_.resize(kBufferBytes);
  buffer_.resize(std::fread(buffer_.data(), 1, kBufferBytes, file_.get()));
  at_ = 0;
  return !buffer_.empty();
}

absl::Status TextLines::Check(std::string& line) const {
  if (number_ == 1 && line.compare(0, kByteOrderMark.size(), kByteOrderMark) == 0) {
    line.erase(0, kByteOrderMark.size());
  }
  const char* wrong = nullptr;
  if (!IsUtf8(line)) {
    wrong = "not UTF-8: save the file as UTF-8 text";
  } else if (line.find('\0') != std::string::npos) {
    wrong = "holds a zero byte: is this a text file?";
  }
  if (wrong == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(place(), ": ", wrong));
}

absl::StatusOr<bool> TextLines::Next(std::string& line) {
  line.clear();
  bool begun = false;
  while (at_ < buffer_.size() || Fill()) {
    if (after_return_ && buffer_[at_] == '\n') {
      after_return_ = false;
      ++at_;
      continue;
    }
    after_return_ = false;
    if (!begun) ++number_;
    begun = true;
    const size_t end = buffer_.find_first_of("\r\n", at_);
    const size_t stop = end == std::string::npos ? buffer_.size() : end;
    if (line.size() + (stop - at_) > line_bytes_max_) {
      return absl::InvalidArgumentError(absl::StrCat(place(), ": the line is longer than ",
                                                     line_bytes_max_,
                                                     " bytes: one prompt belongs on a line"));
    }
    line.append(buffer_, at_, stop - at_);
    at_ = stop;
    if (end == std::string::npos) continue;
    after_return_ = buffer_[end] == '\r';
    ++at_;
    OXBOW_RETURN_IF_ERROR(Check(line));
    return true;
  }
  if (std::ferror(file_.get()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot be read to its end: ", path_));
  }
  if (begun) OXBOW_RETURN_IF_ERROR(Check(line));
  return begun;
}

bool IsUtf8(std::string_view text) {
  if (text.size() > std::numeric_limits<int32_t>::max()) return false;
  const auto length = static_cast<int32_t>(text.size());
  for (int32_t at = 0; at < length;) {
    UChar32 c = 0;
    U8_NEXT(text.data(), at, length, c);
    if (c < 0) return false;
  }
  return true;
}

std::string_view StripSpace(std::string_view text) {
  const auto length = static_cast<int32_t>(text.size());
  int32_t begin = 0;
  while (begin < length) {
    int32_t next = begin;
    UChar32 c = 0;
    U8_NEXT(text.data(), next, length, c);
    if (!IsSpace(c)) break;
    begin = next;
  }
  int32_t end = length;
  while (end > begin) {
    int32_t before = end;
    UChar32 c = 0;
    U8_PREV(text.data(), 0, before, c);
    if (!IsSpace(c)) break;
    end = before;
  }
  return text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

}  // namespace oxbow::io
