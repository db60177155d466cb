// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/patience.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{1} << 16;
constexpr uint64_t kLineBytesMax = uint64_t{1} << 30;

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

absl::Status ReadInPieces(const std::filesystem::path& path,
                          const std::function<absl::Status(std::string_view piece)>& take) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) return ErrnoStatus("cannot open", path.string(), errno);
  std::vector<char> buffer(size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(file.value, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("cannot read", path.string(), errno);
    if (got == 0) return absl::OkStatus();
    OXBOW_RETURN_IF_ERROR(take({buffer.data(), static_cast<size_t>(got)}));
  }
}

bool IsPlainName(std::string_view name) {
  const auto unfit = [](unsigned char c) { return c == '/' || absl::ascii_iscntrl(c); };
  return !name.empty() && name[0] != '.' && std::none_of(name.begin(), name.end(), unfit);
}

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path, uint64_t bytes_max) {
  const std::string name = path.string();
  const Descriptor descriptor(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor.value < 0) return ErrnoStatus("cannot open", name, errno);
  struct stat info {};
  if (::fstat(descriptor.value, &info) != 0) return ErrnoStatus("cannot stat", name, errno);
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("not a file: ", name));
  }
  if (static_cast<uint64_t>(info.st_size) > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("file of ", info.st_size, " bytes is larger than ", bytes_max, ": ", name));
  }
  std::string content;
  content.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(descriptor.value, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("cannot read", name, errno);
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
  }
}

absl::Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content) {
  OXBOW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  OXBOW_RETURN_IF_ERROR(file.Append(content));
  return file.Commit();
}

absl::Status CheckPlace(const std::filesystem::path& path, bool folder) {
  std::error_code ignored;
  std::filesystem::path place = std::filesystem::absolute(path, ignored);
  if (!folder) place = place.parent_path();
  while (folder && !std::filesystem::exists(place, ignored) && place.has_relative_path()) {
    place = place.parent_path();
  }
  const std::string probe = TemporaryOf(place / "oxbow").string();
  const Descriptor made(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  int error = made.value < 0 ? errno : 0;
  if (error == 0) ::unlink(probe.c_str());
  if (error == 0 && !folder && std::filesystem::is_directory(path, ignored)) error = EISDIR;
  if (error == 0) return absl::OkStatus();
  const absl::Status why = ErrnoStatus("cannot write to", path.string(), error);
  return MayPass(why) ? why : absl::InvalidArgumentError(why.message());
}

absl::Status MakeDirectories(const std::filesystem::path& directory, size_t above) {
  std::error_code error;
  const bool is_there = std::filesystem::is_directory(directory, error);
  const std::filesystem::path parent = directory.parent_path();
  if (!is_there && above > 0 && parent != directory && !parent.empty()) {
    OXBOW_RETURN_IF_ERROR(MakeDirectories(parent, above - 1));
  }
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) {
    return ErrnoStatus("cannot create directory", directory.string(), errno);
  }
  // The maker of one that is there may have died before this; its parent may be closed to readers.
  const absl::Status synced = SyncDirectory(parent);
  return is_there ? absl::OkStatus() : synced;
}

absl::StatusOr<AppendFile> AppendFile::Open(const std::filesystem::path& path) {
  Descriptor descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (descriptor.value < 0) return ErrnoStatus("cannot open", path.string(), errno);
  AppendFile file(std::move(descriptor), path.string());
  OXBOW_RETURN_IF_ERROR(SyncDirectory(path.parent_path()));
  return file;
}

absl::Status AppendFile::Append(std::string_view bytes, bool sync) {
  if (torn_.has_value() && ::ftruncate(descriptor_.value, *torn_) != 0) {
    return ErrnoStatus("cannot cut off what was half written", path_, errno);
  }
  torn_.reset();
  const off_t end = ::lseek(descriptor_.value, 0, SEEK_END);
  absl::Status status = WriteAll(descriptor_.value, bytes, path_);
  if (status.ok() && sync && ::fsync(descriptor_.value) != 0) {
    status = ErrnoStatus("cannot fsync", path_, errno);
  }
  if (!status.ok() && end >= 0 && ::ftruncate(descriptor_.value, end) != 0) torn_ = end;
  return status;
}

}  // namespace oxbow
