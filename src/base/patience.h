// SPDX-License-Identifier: Apache-2.0
// How long trouble that may pass is waited for: a full disk, an I/O error, a stale file handle, a
// service that is away. In time, and not in tries.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace oxbow {

// Whether the same call may succeed later: kUnavailable, kDeadlineExceeded, and kResourceExhausted
// but for the memory of a device.
bool MayPass(const absl::Status& status);

// One series of failures: pauses of 1, 2, 4 ... seconds, at most 60.
class Patience {
 public:
  // `limit`: from the first failure of a series on.
  Patience(const Clock& clock, absl::Duration limit) : clock_(clock), limit_(limit) {}

  // Notes a failure. Returns how long to wait before another try.
  absl::Duration Failed();
  void Succeeded() { failures_ = 0; }

  // Whether the limit was over at the last failure.
  bool over() const { return failures_ > 0 && over_; }

  uint32_t failures() const { return failures_; }  // Without a success between them.

 private:
  const Clock& clock_;
  const absl::Duration limit_;
  uint32_t failures_ = 0;
  absl::Duration first_;  // Time of the series' first failure.
  bool over_ = false;
};

// Calls `attempt` until it is well, its error is one that stays, or patience is over; then returns
// its error. `wait(error, pause)` is called before each further try, and ends it with an error of
// its own.
absl::Status Insist(const Clock& clock, absl::Duration limit,
                    const std::function<absl::Status()>& attempt,
                    const std::function<absl::Status(const absl::Status&, absl::Duration)>& wait);

}  // namespace oxbow
