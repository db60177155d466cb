// SPDX-License-Identifier: Apache-2.0
#include "rpc/silence_guard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rpc/status.h"

namespace oxbow::rpc {

SilenceGuard::Watched::Watched(SilenceGuard& guard, grpc::ClientContext& context,
                               absl::Duration silence_max)
    : guard_(guard), context_(context), silence_max_(silence_max), heard_(guard.clock_.Now()) {
  absl::MutexLock lock(&guard_.mutex_);
  if (guard_.cancelled_) context_.TryCancel();
  guard_.calls_.insert(this);
  guard_.changed_.Signal();
}

SilenceGuard::Watched::~Watched() {
  absl::MutexLock lock(&guard_.mutex_);
  guard_.calls_.erase(this);
}

void SilenceGuard::Watched::SignOfLife() {
  absl::MutexLock lock(&guard_.mutex_);
  heard_ = guard_.clock_.Now();
}

absl::Status SilenceGuard::Watched::Ended(const grpc::Status& finished) const {
  absl::Status status = FromGrpc(finished);
  absl::MutexLock lock(&guard_.mutex_);
  if (silent_) {
    return absl::DeadlineExceededError(
        absl::StrCat("nothing moved for ", absl::FormatDuration(silence_max_)));
  }
  if (!absl::IsCancelled(status) || guard_.cancelled_) return status;
  return absl::UnavailableError(status.message());
}

SilenceGuard::SilenceGuard(const Clock& clock) : clock_(clock), thread_([this] { Guard(); }) {}

SilenceGuard::~SilenceGuard() {
  {
    absl::MutexLock lock(&mutex_);
    OXBOW_CHECK(calls_.empty()) << "guarded calls: " << calls_.size();
    ending_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void SilenceGuard::CancelAll() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (Watched* call : calls_) call->context_.TryCancel();
}

bool SilenceGuard::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

void SilenceGuard::Guard() {
  absl::MutexLock lock(&mutex_);
  while (!ending_) {
    const absl::Duration now = clock_.Now();
    absl::Duration next = absl::InfiniteDuration();
    for (Watched* call : calls_) {
      if (call->silent_) continue;
      const absl::Duration left = call->heard_ + call->silence_max_ - now;
      if (left > absl::ZeroDuration()) {
        next = std::min(next, left);
        continue;
      }
      call->silent_ = true;
      call->context_.TryCancel();
    }
    changed_.WaitWithTimeout(&mutex_, next);
  }
}

}  // namespace oxbow::rpc
