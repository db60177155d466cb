// SPDX-License-Identifier: Apache-2.0
// A wall clock that a test sets while processes run: the kernel's, and some seconds more. In a
// process that preloads this the file $OXBOW_TEST_CLOCK says how many (8 bytes, an integer of this
// machine), in an executable that links it the variable. Steady clocks are as they are.
#include "tests/testing/wall_clock_stepped.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

extern "C" {
std::atomic<int64_t> oxbow_wall_clock_ahead = 0;
}

namespace {

const std::atomic<int64_t>* MappedSeconds() {
  const char* path = getenv("OXBOW_TEST_CLOCK");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return &oxbow_wall_clock_ahead;
  void* mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? &oxbow_wall_clock_ahead
                              : static_cast<const std::atomic<int64_t>*>(mapped);
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) {
    static const std::atomic<int64_t>* const seconds = MappedSeconds();
    time->tv_sec += seconds->load(std::memory_order_relaxed);
  }
  return static_cast<int>(result);
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  timespec precise;
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  *time = {.tv_sec = precise.tv_sec, .tv_usec = precise.tv_nsec / 1000};
  return result;
}

extern "C" time_t time(time_t* seconds) noexcept {
  timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (seconds != nullptr) *seconds = precise.tv_sec;
  return precise.tv_sec;
}
