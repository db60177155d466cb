// SPDX-License-Identifier: Apache-2.0
// A wall clock that is an hour ahead of the kernel's, for the process that links or preloads this.
//
// A wait until a time of the wall clock then lasts an hour longer in the kernel, as if the clock
// had been set back by an hour right after the time was computed. Steady clocks are as they are.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr time_t kAhead = 3600;  // Seconds.

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += kAhead;
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
