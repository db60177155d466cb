// SPDX-License-Identifier: Apache-2.0
// When a failed call is made again, and after how long.
//
//   absent   UNAVAILABLE: nobody is there, now.
//   busy     RESOURCE_EXHAUSTED: somebody is there, and asks for a pause.
//   silent   DEADLINE_EXCEEDED: no answer in time; the call may have been carried out.
//
// All other codes are answers: the same call would get them again. Back-off is drawn from the
// upper half of its interval, so that callers that failed together do not come back together. For
// idempotent calls only.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace oxbow::rpc {

enum class Failure { kNone, kAnswer, kAbsent, kBusy, kSilent };
Failure FailureOf(const absl::Status& status);

// Waits of doubling length: the n-th is drawn from [d/2, d], d = min(first * 2^n, max).
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration max) : next_(first), max_(max) {}
  absl::Duration Next();

 private:
  absl::Duration next_;
  const absl::Duration max_;
  std::mt19937 random_{std::random_device()()};
};

// `length`, or up to half of it less: for what many processes would do at the same moment.
absl::Duration Jittered(absl::Duration length);

struct RetryPolicy {
  int tries = 3;
  absl::Duration backoff_first = absl::Milliseconds(50);
  absl::Duration backoff_max = absl::Seconds(2);
};

// Runs `call` until it neither finds its server absent nor busy, or `tries` are used up. `sleep` is
// a parameter so that tests need not wait.
absl::Status Retry(const RetryPolicy& policy, const std::function<absl::Status()>& call,
                   const std::function<void(absl::Duration)>& sleep = nullptr);

// Runs `call` until it is answered, however often its server is absent, busy or silent, as long as
// `pause` says so: it waits for the given time, and is false when the answer is no longer wanted.
// Returns the last status.
absl::Status RetryUntilAnswered(const RetryPolicy& policy,
                                const std::function<absl::Status()>& call,
                                const std::function<bool(absl::Duration)>& pause);

// After how long a busy server wants to be asked again: trailing metadata of a call,
//
//   retry-after-ms: 4027        whole milliseconds, decimal, at most a day
//
// and a payload of the status on either side. A caller without this knowledge ignores it.

inline constexpr char kRetryAfterKey[] = "retry-after-ms";

// The value of the metadata: rounded up, 0 to a day.
std::string RetryAfterText(absl::Duration pause);

absl::Status WithRetryAfter(absl::Status status, absl::Duration pause);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

// The pause that the server of an ended call asks for. Nothing for what is no such number.
std::optional<absl::Duration> RetryAfterOf(const grpc::ClientContext& ended);

}  // namespace oxbow::rpc
