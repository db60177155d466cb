// SPDX-License-Identifier: Apache-2.0
// A disk that is full, broken or away, in every process that preloads this (faulty_disk.h): calls
// on files below a directory fail with the error that a shared file says, as long as it says one. A
// full disk can still be read, and files that are there can be opened and cut.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/testing/disk_fault.h"

namespace {

using oxbow::testing::DiskFault;

// The function that this file hides.
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const DiskFault* Mapped() {
  static const DiskFault none;
  const char* path = getenv(oxbow::testing::kDiskFaultFile);
  if (path == nullptr) return &none;
  const int file = Real<int(const char*, int, ...)>("open")(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return &none;
  void* mapped = mmap(nullptr, sizeof(DiskFault), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? &none : static_cast<const DiskFault*>(mapped);
}

int Error() {
  static const DiskFault* const fault = Mapped();
  return fault->error.load(std::memory_order_relaxed);
}

// Below the directory, and neither a log of a process nor the buffer's.
bool IsHit(const char* path) {
  static const char* const below = getenv(oxbow::testing::kDiskFaultBelow);
  if (below == nullptr || strncmp(path, below, strlen(below)) != 0) return false;
  const char* const rest = path + strlen(below);
  return strncmp(rest, "/logs", 5) != 0 && strncmp(rest, "/replay", 7) != 0;
}

// Whether a call fails, with errno set.
bool Fails(const char* path, bool writes) {
  const int error = Error();
  if (error == 0 || (error == ENOSPC && !writes) || !IsHit(path)) return false;
  errno = error;
  return true;
}

bool Fails(int descriptor, bool writes) {
  if (Error() == 0) return false;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const int before = errno;
  const ssize_t length = readlink(link, path, sizeof path - 1);
  errno = before;
  if (length <= 0) return false;
  path[length] = '\0';
  return Fails(path, writes);
}

bool IsThere(const char* path) {
  struct stat info {};
  return stat(path, &info) == 0;
}

int Open(const char* name, const char* path, int flags, mode_t mode) {
  const bool makes = (flags & O_CREAT) != 0 && Error() != 0 && !IsThere(path);
  return Fails(path, makes) ? -1 : Real<int(const char*, int, ...)>(name)(path, flags, mode);
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Open("open64", path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  return Fails(descriptor, true)
             ? -1
             : Real<ssize_t(int, const void*, size_t)>("write")(descriptor, bytes, count);
}

ssize_t read(int descriptor, void* bytes, size_t count) {
  return Fails(descriptor, false)
             ? -1
             : Real<ssize_t(int, void*, size_t)>("read")(descriptor, bytes, count);
}

ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) {
  return Fails(descriptor, false)
             ? -1
             : Real<ssize_t(int, void*, size_t, off_t)>("pread")(descriptor, bytes, count, offset);
}

int fsync(int descriptor) {
  return Fails(descriptor, false) ? -1 : Real<int(int)>("fsync")(descriptor);
}

int mkdir(const char* path, mode_t mode) noexcept {
  const bool makes = Error() != 0 && !IsThere(path);
  return Fails(path, makes) ? -1 : Real<int(const char*, mode_t)>("mkdir")(path, mode);
}

int rename(const char* from, const char* to) noexcept {
  return Fails(from, false) ? -1 : Real<int(const char*, const char*)>("rename")(from, to);
}

}  // extern "C"
