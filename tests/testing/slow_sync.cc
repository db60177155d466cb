// SPDX-License-Identifier: Apache-2.0
// A disk that is slow to say that something is on it, in processes that preload this: each fsync
// and fdatasync takes so many milliseconds more as the file $OXBOW_TEST_SYNC says (8 bytes, an
// integer of this machine).
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

const std::atomic<int64_t>* MappedMilliseconds() {
  static const std::atomic<int64_t> none = 0;
  const char* path = getenv("OXBOW_TEST_SYNC");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return &none;
  void* mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? &none : static_cast<const std::atomic<int64_t>*>(mapped);
}

void Wait() {
  static const std::atomic<int64_t>* const milliseconds = MappedMilliseconds();
  const int64_t wait = milliseconds->load(std::memory_order_relaxed);
  if (wait <= 0) return;
  poll(nullptr, 0, static_cast<int>(wait));
}

}  // namespace

extern "C" int fsync(int file) {
  Wait();
  return static_cast<int>(syscall(SYS_fsync, file));
}

extern "C" int fdatasync(int file) {
  Wait();
  return static_cast<int>(syscall(SYS_fdatasync, file));
}
