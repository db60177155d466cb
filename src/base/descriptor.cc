// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace oxbow {

LockOutcome TryLock(int file, int operation, LockFunction lock) {
  while (lock(file, operation | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return LockOutcome::kHeld;
    const bool none = errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
    return none ? LockOutcome::kNoLocks : LockOutcome::kError;
  }
  return LockOutcome::kLocked;
}

Descriptor::Descriptor(Descriptor&& other) noexcept : value(std::exchange(other.value, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value, other.value);
  return *this;
}

Descriptor::~Descriptor() {
  if (value >= 0) ::close(value);
}

absl::Status ErrnoStatus(const char* what, const std::string& path, int error) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error), ": ", path);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EIO:
    case ESTALE:
    case ENOMEM:
    case EAGAIN:
    case ETIMEDOUT:
    case EREMOTEIO:
    case ENOTCONN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status WriteAll(int descriptor, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus("cannot write", path, errno);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::filesystem::path& directory) {
  const std::string name = directory.empty() ? "." : directory.string();
  const Descriptor descriptor(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.value < 0) return ErrnoStatus("cannot open directory", name, errno);
  if (::fsync(descriptor.value) != 0) return ErrnoStatus("cannot fsync directory", name, errno);
  return absl::OkStatus();
}

}  // namespace oxbow
