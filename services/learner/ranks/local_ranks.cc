// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/local_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/listening_sockets.h"
#include "base/parent_death.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kEndGrace = absl::Seconds(1);
constexpr char kLoopback[] = "127.0.0.1";
constexpr char kParent[] = "OXBOW_RANK_ZERO_PID";

// A free port. Another process may take it before rank 0 does; then the start fails and is tried
// again.
absl::StatusOr<int> FreePort() {
  const absl::StatusOr<ListeningSockets> sockets = Listen(absl::StrCat(kLoopback, ":0"));
  if (!sockets.ok()) return Annotate(sockets.status(), "no port for the ranks");
  return sockets->port;
}

// The path is resolved first: a process started from /proc/self/exe would be named "exe".
absl::StatusOr<pid_t> SpawnSelf(const std::vector<std::string>& argv,
                                const std::vector<std::string>& environment) {
  const absl::StatusOr<std::filesystem::path> self = ExecutablePath();
  if (!self.ok()) return Annotate(self.status(), "cannot start a rank");
  absl::StatusOr<pid_t> pid = Spawn({.binary = *self, .argv = argv, .environment = environment});
  if (!pid.ok()) return Annotate(pid.status(), "cannot start a rank");
  return pid;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRanks>> LocalRanks::Start(
    parallel::JoinOptions place, int ranks, const std::vector<std::string>& argv) {
  OXBOW_ASSIGN_OR_RETURN(const int port, FreePort());
  std::unique_ptr<LocalRanks> started(new LocalRanks());
  started->place_ = std::move(place);
  started->place_.size = ranks;
  started->place_.agent_has_store = false;
  started->place_.address = kLoopback;
  started->place_.port = port;
  for (int rank = 1; rank < ranks; ++rank) {
    OXBOW_ASSIGN_OR_RETURN(
        const pid_t pid,
        SpawnSelf(argv,
                  {absl::StrCat("MASTER_ADDR=", kLoopback), absl::StrCat("MASTER_PORT=", port),
                   absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", rank),
                   absl::StrCat("WORLD_SIZE=", ranks), "TORCHELASTIC_USE_AGENT_STORE=False",
                   absl::StrCat(kParent, "=", getpid())}));
    {
      absl::MutexLock lock(&started->mutex_);
      started->alive_[rank] = pid;
    }
    started->watchers_.emplace_back(
        [ranks = started.get(), rank, pid] { ranks->Watch(rank, pid); });
  }
  return started;
}

// A rank that fails ends the others too, at once: nothing is lost that a kill would not lose,
// and no rank waits for a deadline.
void LocalRanks::Watch(int rank, pid_t pid) {
  siginfo_t info{};
  // Reaped only after its pid is forgotten here, so that no other process can have that pid.
  while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  absl::MutexLock lock(&mutex_);
  alive_.erase(rank);
  waitpid(pid, nullptr, 0);
  if (ending_) return;
  const bool exited = info.si_code == CLD_EXITED;
  if (exited && info.si_status == kExitDrained) {  // Asked to stop before it had joined.
    kill(getpid(), SIGTERM);
    return;
  }
  std::cerr << "learner: rank " << rank
            << (exited ? " ended with exit status " : " was killed by signal ") << info.si_status
            << "; all ranks end" << std::endl;
  std::_Exit(exited && info.si_status != kExitOk ? info.si_status : kExitUnavailable);
}

void LocalRanks::Ending() {
  absl::MutexLock lock(&mutex_);
  ending_ = true;
}

LocalRanks::~LocalRanks() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    const auto gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return alive_.empty(); };
    mutex_.AwaitWithTimeout(absl::Condition(&gone), kEndGrace);
    for (const auto& [rank, pid] : alive_) kill(pid, SIGKILL);
  }
  for (std::thread& watcher : watchers_) watcher.join();
}

void EndWithRankZero() {
  const char* parent = std::getenv(kParent);
  int pid = 0;
  if (parent == nullptr || !absl::SimpleAtoi(parent, &pid)) return;
  if (!DieWithParent(pid)) std::_Exit(kExitUnavailable);
}

}  // namespace oxbow::learner
