// SPDX-License-Identifier: Apache-2.0
#include "rpc/retry.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace oxbow::rpc {
namespace {

constexpr int64_t kMillisecondsMax = 24 * 3600 * 1000;

std::optional<absl::Duration> Parse(const std::string& text) {
  int64_t milliseconds = 0;
  if (!absl::SimpleAtoi(text, &milliseconds)) return std::nullopt;
  if (milliseconds < 0 || milliseconds > kMillisecondsMax) return std::nullopt;
  return absl::Milliseconds(milliseconds);
}

}  // namespace

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

std::string RetryAfterText(absl::Duration pause) {
  const int64_t milliseconds = absl::ToInt64Milliseconds(absl::Ceil(pause, absl::Milliseconds(1)));
  return absl::StrCat(std::clamp<int64_t>(milliseconds, 0, kMillisecondsMax));
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration pause) {
  status.SetPayload(kRetryAfterKey, absl::Cord(RetryAfterText(pause)));
  return status;
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto text = status.GetPayload(kRetryAfterKey);
  return text.has_value() ? Parse(std::string(*text)) : std::nullopt;
}

std::optional<absl::Duration> RetryAfterOf(const grpc::ClientContext& ended) {
  const auto& metadata = ended.GetServerTrailingMetadata();
  const auto found = metadata.find(kRetryAfterKey);
  if (found == metadata.end()) return std::nullopt;
  return Parse(std::string(found->second.data(), found->second.size()));
}

}  // namespace oxbow::rpc
