// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/lender_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"

namespace oxbow::rollout {
namespace {

absl::Status CannotWatch(const char* what, pid_t lender) {
  return absl::UnavailableError(
      absl::StrCat(what, ": ", std::strerror(errno), ": process ", lender));
}

// Whether the descriptor can be read within `timeout` milliseconds; -1: without an end.
bool Readable(int descriptor, int timeout) {
  pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&wanted, 1, timeout);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LenderWatch>> LenderWatch::Start(pid_t lender,
                                                                absl::Duration grace) {
  Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, lender, 0)));
  if (process.value < 0) return CannotWatch("the end of a process cannot be seen", lender);
  Descriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (stop.value < 0) return CannotWatch("no eventfd", lender);
  return std::unique_ptr<LenderWatch>(new LenderWatch(std::move(process), std::move(stop), grace));
}

LenderWatch::LenderWatch(Descriptor lender, Descriptor stop, absl::Duration grace)
    : lender_(std::move(lender)), stop_(std::move(stop)), thread_([this, grace] { Loop(grace); }) {}

LenderWatch::~LenderWatch() {
  ::eventfd_write(stop_.value, 1);
  thread_.join();
}

void LenderWatch::Loop(absl::Duration grace) {
  pollfd either[] = {{.fd = lender_.value, .events = POLLIN, .revents = 0},
                     {.fd = stop_.value, .events = POLLIN, .revents = 0}};
  while (::poll(either, 2, -1) < 0 && errno == EINTR) {
  }
  if (Readable(stop_.value, static_cast<int>(absl::ToInt64Milliseconds(grace)))) return;
  OXBOW_LOG(Warning)
      << "the learner whose base weights this worker shares has ended, and so does the worker";
  ::_exit(kExitUnavailable);  // The thread that computes may be in the midst of a long batch.
}

}  // namespace oxbow::rollout
