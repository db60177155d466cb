// SPDX-License-Identifier: Apache-2.0
// Timed waits that no step of the wall clock disturbs.
//
// Abseil before 20230802 waits until a time of the wall clock. If that clock is set back by an hour
// during a wait, by NTP or when a virtual machine resumes, then the wait lasts an hour longer:
// leases do not expire, and nobody says that it is alive. An executable that links oxbow_base
// replaces the one function of Abseil that waits. It waits on the steady clock instead. This holds
// for absl::Mutex, absl::CondVar and absl::Notification, in gRPC as well as here. So code simply
// uses Abseil's timed waits.
//
// How long a wait shall last is its end less the present time, by the clock that the end was
// computed with. There are two: the system's, which gRPC uses, and Abseil's own, which is
// interpolated and follows a step of the system's one or two seconds later. In between they are
// apart by the step. Nobody says which it was, so the one counts that is nearer to the wait's end:
// the wait lasts as it should, unless it is longer than half of the step; then it may end early,
// never late.
//
// One case remains: a step in the microseconds between the call and the wait moves that one wait.
#include "absl/base/config.h"

// The linker is told to keep this symbol, and so this file, in every executable that links
// oxbow_base (CMakeLists.txt): nothing else refers to it.
extern "C" {
extern const char kOxbowSteadyWaits;
const char kOxbowSteadyWaits = 1;
}

#if defined(ABSL_LTS_RELEASE_VERSION) && ABSL_LTS_RELEASE_VERSION < 20230802

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/kernel_timeout.h"
#include "absl/time/clock.h"

namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

// Nanoseconds until `wall`; negative if it has passed.
int64_t LeftUntil(int64_t wall) {
  const int64_t by_abseil = wall - absl::GetCurrentTimeNanos();
  const int64_t by_system = wall - nanoseconds(system_clock::now().time_since_epoch()).count();
  return std::abs(by_abseil) < std::abs(by_system) ? by_abseil : by_system;
}

// When the wait that ends at `wall` ends on the steady clock. A thread that goes on with the same
// wait, after a wake-up that was not for it, gets the same answer.
steady_clock::time_point SteadyEnd(int64_t wall) {
  thread_local int64_t known = 0;
  thread_local steady_clock::time_point end;
  if (wall != known) {
    end = steady_clock::now() + nanoseconds(LeftUntil(wall));
    known = wall;
  }
  return end;
}

bool TakeOne(std::atomic<int32_t>& count) {
  int32_t seen = count.load(std::memory_order_relaxed);
  while (seen != 0) {
    if (count.compare_exchange_weak(seen, seen - 1, std::memory_order_acquire)) return true;
  }
  return false;
}

}  // namespace

// Weak in the library, so this definition replaces it. The library's own Post adds one to the
// 32-bit count at the front of the waiter's state and wakes one waiter of a private futex there.
extern "C" bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(
    absl::synchronization_internal::KernelTimeout timeout) {
  auto* const identity = absl::synchronization_internal::GetOrCreateCurrentThreadIdentity();
  auto& count = *reinterpret_cast<std::atomic<int32_t>*>(identity->waiter_state.data);
  steady_clock::time_point end;
  if (timeout.has_timeout()) {
    const timespec wall = timeout.MakeAbsTimespec();
    end = SteadyEnd(int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  }
  while (!TakeOne(count)) {
    timespec left{};
    if (timeout.has_timeout()) {
      const int64_t ns = nanoseconds(end - steady_clock::now()).count();
      if (ns <= 0) return false;
      left = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    }
    // A relative timeout of a futex is measured on CLOCK_MONOTONIC.
    syscall(SYS_futex, &count, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0,
            timeout.has_timeout() ? &left : nullptr, nullptr, 0);
  }
  return true;
}

#endif
