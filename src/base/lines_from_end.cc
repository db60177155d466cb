// SPDX-License-Identifier: Apache-2.0
#include "base/lines_from_end.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{1} << 16;
constexpr uint64_t kLineBytesMax = uint64_t{1} << 30;

}  // namespace

absl::StatusOr<LinesFromEnd> LinesFromEnd::Open(const std::filesystem::path& path) {
  const std::string name = path.string();
  Descriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) return ErrnoStatus("cannot open", name, errno);
  struct stat info {};
  if (::fstat(file.value, &info) != 0) return ErrnoStatus("cannot stat", name, errno);
  return LinesFromEnd(std::move(file), name, static_cast<uint64_t>(info.st_size));
}

absl::Status LinesFromEnd::ReadBlockBefore() {
  if (held_.size() > kLineBytesMax) {
    return absl::DataLossError(
        absl::StrCat("a line has more than ", kLineBytesMax, " bytes: ", path_));
  }
  // Twice the bytes each time, so that a long line is not moved for every block.
  const uint64_t size = std::min(begin_, std::max<uint64_t>(kBlockBytes, held_.size()));
  std::string block(size, '\0');
  for (uint64_t done = 0; done < size;) {
    const ssize_t got = ::pread(file_.value, block.data() + done, size - done,
                                static_cast<off_t>(begin_ - size + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("cannot read", path_, errno);
    if (got == 0) return absl::DataLossError(absl::StrCat("the file became shorter: ", path_));
    done += static_cast<uint64_t>(got);
  }
  held_.insert(0, block);
  begin_ -= size;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<FileLine>> LinesFromEnd::Next() {
  if (held_.empty() && begin_ == 0) return std::nullopt;
  if (held_.empty()) OXBOW_RETURN_IF_ERROR(ReadBlockBefore());
  FileLine line;
  line.whole = held_.back() == '\n';
  line.end = begin_ + held_.size();
  if (line.whole) held_.pop_back();
  size_t newline = held_.rfind('\n');
  while (newline == std::string::npos && begin_ > 0) {
    OXBOW_RETURN_IF_ERROR(ReadBlockBefore());
    newline = held_.rfind('\n');
  }
  const size_t first = newline + 1;  // 0 if there is no newline before.
  line.begin = begin_ + first;
  line.text = held_.substr(first);
  held_.resize(first);
  return line;
}

absl::Status CutFile(const std::filesystem::path& path, uint64_t size) {
  if (::truncate(path.c_str(), static_cast<off_t>(size)) == 0) return absl::OkStatus();
  return ErrnoStatus("cannot cut", path.string(), errno);
}

}  // namespace oxbow
