#include "core/parallel/bounded_call.h"

#include <ATen/ATen.h>

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::parallel {
namespace {

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
                        std::function<absl::Status()> call) {
  // Shared with a thread that may outlive this function.
  auto outcome = std::make_shared<Outcome>();
  std::thread([outcome, call = std::move(call)] {
    absl::Status status = Caught(call);
    const absl::MutexLock lock(&outcome->mutex);
    outcome->status = std::move(status);
    outcome->done = true;
  }).detach();
  const absl::MutexLock lock(&outcome->mutex);
  if (!outcome->mutex.AwaitWithTimeout(absl::Condition(&outcome->done), timeout)) {
    return absl::DeadlineExceededError(absl::StrCat(what, ": ", absl::FormatDuration(timeout)));
  }
  return outcome->status;
}

}  // namespace oxbow::parallel
