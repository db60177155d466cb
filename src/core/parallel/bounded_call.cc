// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/bounded_call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::parallel {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(10);  // Looks at `cancelled`.

struct Outcome {
  absl::Mutex mutex;
  bool done = false;
  absl::Status status;
};

absl::Status FirstLine(const std::string& text) {
  return absl::UnavailableError(text.substr(0, text.find('\n')));
}

}  // namespace

absl::Status Caught(const std::function<absl::Status()>& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    return FirstLine(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return FirstLine(error.what());
  }
}

absl::Status CallWithin(absl::Duration timeout, const std::string& what,
                        std::function<absl::Status()> call, const std::atomic<bool>* cancelled) {
  // Shared with a thread that may outlive this function.
  auto outcome = std::make_shared<Outcome>();
  std::thread([outcome, call = std::move(call)] {
    absl::Status status = Caught(call);
    const absl::MutexLock lock(&outcome->mutex);
    outcome->status = std::move(status);
    outcome->done = true;
  }).detach();
  const absl::MutexLock lock(&outcome->mutex);
  absl::Duration left = timeout;
  while (left > absl::ZeroDuration()) {
    const absl::Duration pause = cancelled == nullptr ? left : std::min(left, kBetweenLooks);
    if (outcome->mutex.AwaitWithTimeout(absl::Condition(&outcome->done), pause)) {
      return outcome->status;
    }
    if (cancelled != nullptr && *cancelled) return absl::CancelledError(what);
    left -= pause;
  }
  return absl::DeadlineExceededError(absl::StrCat(what, ": ", absl::FormatDuration(timeout)));
}

}  // namespace oxbow::parallel
