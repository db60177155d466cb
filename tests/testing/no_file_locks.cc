// SPDX-License-Identifier: Apache-2.0
// A file system without locks, for the process that preloads this: Lustre that was mounted without
// `flock` answers ENOSYS to both kinds of lock.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace {

int Refuse() {
  errno = ENOSYS;
  return -1;
}

int Forward(int file, int command, void* argument) {
  if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK) return Refuse();
  return static_cast<int>(::syscall(SYS_fcntl, file, command, argument));
}

}  // namespace

extern "C" {

int flock(int, int) { return Refuse(); }

int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return Forward(file, command, argument);
}

int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return Forward(file, command, argument);
}

}  // extern "C"
