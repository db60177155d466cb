// SPDX-License-Identifier: Apache-2.0
#include "rpc/stop_signal.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "rpc/server.h"

namespace oxbow::rpc {
namespace {

constexpr absl::Duration kSameRequest = absl::Seconds(3);

}  // namespace

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2}) {
    // A blocked signal arrives even if it is ignored, so an ignored one must not be blocked.
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals, number);
  }
  return signals;
}

std::string NameOfSignal(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? absl::StrCat("signal ", number) : absl::StrCat("SIG", name);
}

StopSignal::StopSignal(int exit_code) : thread_([this, exit_code] { Run(exit_code); }) {}

StopSignal::~StopSignal() {
  ending_ = true;
  // The thread takes the signal with sigwait, so it does not end by it.
  pthread_kill(thread_.native_handle(), SIGTERM);  // NOLINT(bugprone-bad-signal-to-kill-thread)
  thread_.join();
}

void StopSignal::WhileLoading(Action last) {
  absl::MutexLock lock(&mutex_);
  loading_ = std::move(last);
}

void StopSignal::Finish(Action finish) {
  absl::MutexLock lock(&mutex_);
  finish_ = std::move(finish);
}

void StopSignal::Serves() {
  Finish([this](int) { received_.Notify(); });
}

void StopSignal::Wait() { received_.WaitForNotification(); }

void StopSignal::Run(int exit_code) {
  std::optional<absl::Duration> first;
  while (true) {
    const int signal = WaitForStopSignal();
    if (ending_) return;
    absl::MutexLock lock(&mutex_);
    if (finish_ == nullptr) {
      OXBOW_LOG(Info) << "ends before it serves" << Field("signal", NameOfSignal(signal));
      if (loading_ != nullptr) loading_(signal);
      std::_Exit(exit_code);
    }
    const absl::Duration now = Clock::Steady().Now();
    if (first.has_value() && now - *first >= kSameRequest) {
      OXBOW_LOG(Warning) << "stopping at once" << Field("signal", NameOfSignal(signal));
      std::_Exit(signal == SIGINT ? kExitInterrupted : kExitTerminated);
    }
    if (first.has_value()) continue;
    first = now;
    OXBOW_LOG(Info) << "stopping" << Field("signal", signal);
    finish_(signal);
  }
}

}  // namespace oxbow::rpc
