// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"
#include "base/patience.h"
#include "base/status_macros.h"

namespace oxbow {

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
