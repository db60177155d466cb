// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow {

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
  std::string temporary = absl::StrCat(path.string(), ".tmp.", ::getpid());
  Descriptor descriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (descriptor.value < 0) return ErrnoStatus("cannot create", temporary, errno);
  return AtomicFile(std::move(descriptor), std::move(temporary), path);
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

}  // namespace oxbow
