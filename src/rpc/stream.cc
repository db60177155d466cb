// SPDX-License-Identifier: Apache-2.0
#include "rpc/stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/status.h"

namespace oxbow::rpc {

// The frame, and this awaiter in it, are gone before the stream is told.
void Handler::Ending::await_suspend(Handle handle) noexcept {
  StreamBase* const stream = handle.promise().stream;
  absl::Status result = std::move(handle.promise().result);
  handle.destroy();
  stream->Ended(std::move(result));
}

StreamBase::StreamBase(grpc::CallbackServerContext& context, StreamRunner& runner,
                       std::optional<absl::Duration> idle_max)
    : idle_max_(idle_max.value_or(runner.idle_max())),
      context_(context),
      runner_(runner),
      trace_(TraceOf(&context)) {}

void StreamBase::Begin(Handler handler) {
  handler.handle.promise().stream = this;
  runner_.Opened();
  absl::MutexLock lock(&mutex_);
  self_ = shared_from_this();
  runner_.Resume(handler.handle);
}

void StreamBase::Await(Waits what, std::coroutine_handle<> handler, absl::Duration limit) {
  OXBOW_CHECK(pause_.what == Waits::kNothing) << "a stream waits for one thing at a time";
  pause_.what = what;
  pause_.handler = handler;
  pause_.until = Clock::Steady().Now() + limit;
  SetAlarm();
}

// The limit of a stream that goes on only moves away: the alarm set last is early enough, and is
// set again when it has come.
void StreamBase::SetAlarm() {
  if (pause_.until >= pause_.alarm_at) return;
  pause_.alarm_at = pause_.until;
  runner_.WakeAt(pause_.alarm_at, weak_from_this());
}

void StreamBase::Resume() {
  pause_.what = Waits::kNothing;
  runner_.Resume(std::exchange(pause_.handler, nullptr));
}

void StreamBase::Wake() {
  absl::MutexLock lock(&mutex_);
  if (pause_.what == Waits::kWake) return Resume();
  woken_ = true;
}

void StreamBase::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (finished_ || ended_) return;
  if (!writing_) return FinishWith(status);
  if (!reply_.status.has_value()) reply_.status = status;
}

void StreamBase::AskAgainIn(absl::Duration pause) {
  absl::MutexLock lock(&mutex_);
  reply_.ask_again_in = std::max(reply_.ask_again_in, pause);
}

bool StreamBase::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_ || (!ended_ && !finished_ && context_.IsCancelled());
}

bool StreamBase::expired() const {
  absl::MutexLock lock(&mutex_);
  return expired_;
}

bool StreamBase::SuspendForWake(std::coroutine_handle<> handler, absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(woken_, false)) return false;
  Await(Waits::kWake, handler, limit);
  return true;
}

void StreamBase::Written() {
  writing_ = false;
  if (reply_.status.has_value()) return FinishWith(*reply_.status);
  if (pause_.what == Waits::kWrite) Resume();
}

void StreamBase::Cancelled() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (pause_.what == Waits::kWake) return Resume();
  woken_ = true;
}

void StreamBase::FinishWith(const absl::Status& status) {
  finished_ = true;
  if (reply_.ask_again_in > absl::ZeroDuration()) {
    context_.AddTrailingMetadata(kRetryAfterKey, RetryAfterText(reply_.ask_again_in));
  }
  DoFinish(ToGrpc(status));
}

void StreamBase::Expire(absl::Duration now) {
  absl::MutexLock lock(&mutex_);
  pause_.alarm_at = absl::InfiniteDuration();
  const bool last_writes = ended_ && writing_;
  if ((pause_.what == Waits::kNothing && !last_writes) || finished_) return;
  if (pause_.until > now) return SetAlarm();
  if (pause_.what == Waits::kWake) return Resume();
  expired_ = true;
  // A pending read or write then fails, which resumes the coroutine.
  if (writing_) return context_.TryCancel();  // The status would wait behind what is not taken.
  FinishWith(absl::DeadlineExceededError(
      absl::StrCat("the stream was idle for ", absl::FormatDuration(idle_max_))));
}

void StreamBase::Ended(absl::Status status) {
  std::shared_ptr<StreamBase> last;  // Destroyed after the lock is released.
  StreamRunner& runner = runner_;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    if (!finished_ && writing_) {
      if (!reply_.status.has_value()) reply_.status = std::move(status);
      pause_.until = Clock::Steady().Now() + idle_max_;
      SetAlarm();
    } else if (!finished_) {
      FinishWith(status);
    }
    if (done_) last = std::move(self_);
  }
  if (last == nullptr) return;
  last.reset();
  runner.Closed();
}

void StreamBase::Done() {
  std::shared_ptr<StreamBase> last;
  StreamRunner& runner = runner_;
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
    if (ended_) last = std::move(self_);
  }
  if (last == nullptr) return;
  last.reset();
  runner.Closed();
}

}  // namespace oxbow::rpc
