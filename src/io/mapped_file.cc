// SPDX-License-Identifier: Apache-2.0
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace oxbow::io {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const std::string message = absl::StrCat("cannot open: ", std::strerror(errno), ": ", path);
    return errno == ENOENT || errno == ENOTDIR ? absl::NotFoundError(message)
                                               : absl::PermissionDeniedError(message);
  }
  MappedFile file;
  struct stat info {};
  const bool regular = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (regular && info.st_size > 0) {
    void* address =
        ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address != MAP_FAILED) {
      file.bytes_ = {static_cast<const char*>(address), static_cast<size_t>(info.st_size)};
    }
  }
  ::close(descriptor);
  if (!regular) return absl::FailedPreconditionError(absl::StrCat("not a file: ", path));
  if (info.st_size > 0 && file.bytes_.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map: ", path));
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

void MappedFile::Release(std::string_view part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t end = (begin + part.size()) / page * page;
  // Advice: nothing is wrong where it is not taken.
  if (end > first) (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace oxbow::io
