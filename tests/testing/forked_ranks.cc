// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/forked_ranks.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/check.h"

namespace oxbow::parallel {
namespace {

// A pipe through which rank 0 tells the others its port, one copy for each.
struct PortPipe {
  PortPipe() { OXBOW_CHECK(pipe(ends) == 0) << "pipe"; }
  ~PortPipe() {
    close(ends[0]);
    close(ends[1]);
  }
  void Announce(int port, int copies) const {
    for (int i = 0; i < copies; ++i) {
      OXBOW_CHECK(write(ends[1], &port, sizeof(port)) == sizeof(port)) << "pipe";
    }
  }
  int Read() const {
    int port = 0;
    OXBOW_CHECK(read(ends[0], &port, sizeof(port)) == sizeof(port)) << "pipe";
    return port;
  }
  int ends[2];
};

[[noreturn]] void RunChild(int rank, int size, const ForkOptions& options, const PortPipe& ports,
                           const std::function<void(Ranks&)>& body) {
  at::set_num_threads(1);
  JoinOptions join{.rank = rank,
                   .size = size,
                   .device = options.on_gpus ? "cuda:" + std::to_string(rank) : "cpu",
                   .join_timeout = options.join_timeout,
                   .operation_timeout = options.operation_timeout};
  if (rank == 0) {
    join.on_listening = [&](int port) { ports.Announce(port, size - 1); };
  } else {
    join.port = ports.Read();
  }
  {
    auto ranks = JoinRanks(join);
    if (ranks.ok()) {
      body(**ranks);
    } else if (options.on_join_error) {
      options.on_join_error(ranks.status());
    } else {
      ADD_FAILURE() << ranks.status();
    }
  }
  std::fflush(nullptr);
  // No destructors: those of the parent's objects are the parent's business.
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

int WaitFor(pid_t child, absl::Time until) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
  const absl::Duration left = std::max(until - absl::Now(), absl::ZeroDuration());
  if (poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) == 0) {
    kill(child, SIGKILL);
  }
  close(fd);
  int status = 0;
  OXBOW_CHECK(waitpid(child, &status, 0) == child) << "waitpid";
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::vector<int> RunRanks(int size, const ForkOptions& options,
                          const std::function<void(Ranks&)>& body, absl::Duration limit) {
  const PortPipe ports;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const bool absent = std::count(options.absent.begin(), options.absent.end(), rank) > 0;
    const pid_t child = absent ? -1 : fork();
    if (child == 0) RunChild(rank, size, options, ports, body);
    children.push_back(child);
  }
  const absl::Time until = absl::Now() + limit;
  std::vector<int> exits(children.size(), 0);
  for (int rank = 0; rank < size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (children[r] > 0 && rank != options.killed_last) exits[r] = WaitFor(children[r], until);
  }
  if (options.killed_last >= 0) {
    const auto r = static_cast<size_t>(options.killed_last);
    kill(children[r], SIGKILL);
    exits[r] = WaitFor(children[r], until);
  }
  return exits;
}

}  // namespace oxbow::parallel
