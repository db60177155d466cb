// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".tmp.";
constexpr int kTries = 8;  // A name that is taken is a chance of 1 in 2^64 each.

// Older versions named the process in decimal digits.
bool IsTemporary(const std::string& name) {
  const size_t mark = name.rfind(kMark);
  if (mark == name.npos || mark == 0) return false;
  const std::string_view digits = std::string_view(name).substr(mark + kMark.size());
  return !digits.empty() && digits.size() <= 16 &&
         digits.find_first_not_of("0123456789abcdef") == digits.npos;
}

bool IsOld(const fs::path& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error &&
         fs::file_time_type::clock::now() - written > absl::ToChronoSeconds(kTemporaryKept);
}

}  // namespace

fs::path TemporaryOf(const fs::path& path) {
  return absl::StrFormat("%s%s%016x", path.string(), kMark, RandomBits());
}

AtomicFile::AtomicFile(Descriptor descriptor, std::string temporary, std::filesystem::path path)
    : descriptor_(std::move(descriptor)),
      temporary_(std::move(temporary)),
      path_(std::move(path)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      temporary_(std::exchange(other.temporary_, {})),
      path_(std::move(other.path_)) {}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::filesystem::path& path) {
  for (int i = 1;; ++i) {
    std::string temporary = TemporaryOf(path).string();
    Descriptor descriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (descriptor.value >= 0) {
      return AtomicFile(std::move(descriptor), std::move(temporary), path);
    }
    if (errno != EEXIST || i == kTries) return ErrnoStatus("cannot create", temporary, errno);
  }
}

absl::Status AtomicFile::Append(std::string_view bytes) {
  return WriteAll(descriptor_.value, bytes, temporary_);
}

absl::Status AtomicFile::Commit() {
  if (::fsync(descriptor_.value) != 0) return ErrnoStatus("cannot fsync", temporary_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus("cannot rename into", path_.string(), errno);
  }
  temporary_.clear();
  return SyncDirectory(path_.parent_path());
}

void SweepTemporaries(const fs::path& directory) {
  std::vector<fs::path> old;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (IsTemporary(path.filename().string()) && IsOld(path)) old.push_back(path);
  }
  for (const fs::path& path : old) ::unlink(path.c_str());
}

}  // namespace oxbow
