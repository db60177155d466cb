// SPDX-License-Identifier: Apache-2.0
#include "rpc/retry.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace oxbow::rpc {

Failure FailureOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Failure::kNone;
    case absl::StatusCode::kUnavailable:
      return Failure::kAbsent;
    case absl::StatusCode::kResourceExhausted:
      return Failure::kBusy;
    case absl::StatusCode::kDeadlineExceeded:
      return Failure::kSilent;
    default:
      return Failure::kAnswer;
  }
}

absl::Duration Backoff::Next() {
  const absl::Duration length = std::min(next_, max_);
  next_ = std::min(2 * next_, max_);
  return length * std::uniform_real_distribution(0.5, 1.0)(random_);
}

absl::Duration Jittered(absl::Duration length) {
  std::random_device random;
  return length * std::uniform_real_distribution(0.5, 1.0)(random);
}

absl::Status Retry(const RetryPolicy& policy, const std::function<absl::Status()>& call,
                   const std::function<void(absl::Duration)>& sleep) {
  Backoff backoff(policy.backoff_first, policy.backoff_max);
  absl::Status status;
  for (int attempt = 0; attempt < policy.tries; ++attempt) {
    if (attempt > 0) sleep ? sleep(backoff.Next()) : absl::SleepFor(backoff.Next());
    status = call();
    const Failure failure = FailureOf(status);
    if (failure != Failure::kAbsent && failure != Failure::kBusy) return status;
  }
  return status;
}

absl::Status RetryUntilAnswered(const RetryPolicy& policy,
                                const std::function<absl::Status()>& call,
                                const std::function<bool(absl::Duration)>& pause) {
  Backoff backoff(policy.backoff_first, policy.backoff_max);
  while (true) {
    const absl::Status status = call();
    const Failure failure = FailureOf(status);
    if (failure == Failure::kNone || failure == Failure::kAnswer) return status;
    if (!pause(backoff.Next())) return status;
  }
}

}  // namespace oxbow::rpc
