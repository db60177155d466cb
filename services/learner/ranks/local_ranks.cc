#include "services/learner/ranks/local_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kEndGrace = absl::Seconds(1);
constexpr char kLoopback[] = "127.0.0.1";
constexpr char kParent[] = "OXBOW_RANK_ZERO_PID";

// A free port. Another process may take it before rank 0 does; then the start fails and is tried
// again.
absl::StatusOr<int> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kLoopback, &address.sin_addr);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = fd >= 0 && bind(fd, any, length) == 0 && getsockname(fd, any, &length) == 0;
  const std::string why = std::strerror(errno);
  if (fd >= 0) close(fd);
  if (!bound) return absl::UnavailableError(absl::StrCat("no port for the ranks: ", why));
  return ntohs(address.sin_port);
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv,
                            const std::vector<std::string>& added) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment;  // The first variable of a name counts.
  for (const std::string& entry : added) environment.push_back(const_cast<char*>(entry.c_str()));
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);
  // Resolved here: a process started from the link itself would be named "exe".
  std::error_code unreadable;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  pid_t pid = 0;
  const int error = unreadable ? unreadable.value()
                               : posix_spawn(&pid, self.c_str(), nullptr, nullptr, arguments.data(),
                                             environment.data());
  if (error == 0) return pid;
  return absl::UnavailableError(absl::StrCat("cannot start a rank: ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRanks>> LocalRanks::Start(
    parallel::JoinOptions place, int ranks, const std::vector<std::string>& argv) {
  absl::StatusOr<int> port = FreePort();
  if (!port.ok()) return port.status();
  std::unique_ptr<LocalRanks> started(new LocalRanks());
  started->place_ = std::move(place);
  started->place_.size = ranks;
  started->place_.agent_has_store = false;
  started->place_.address = kLoopback;
  started->place_.port = *port;
  for (int rank = 1; rank < ranks; ++rank) {
    const absl::StatusOr<pid_t> pid =
        Spawn(argv, {absl::StrCat("MASTER_ADDR=", kLoopback), absl::StrCat("MASTER_PORT=", *port),
                     absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", rank),
                     absl::StrCat("WORLD_SIZE=", ranks), "TORCHELASTIC_USE_AGENT_STORE=False",
                     absl::StrCat(kParent, "=", getpid())});
    if (!pid.ok()) return pid.status();
    {
      absl::MutexLock lock(&started->mutex_);
      started->alive_[rank] = *pid;
    }
    started->watchers_.emplace_back(
        [ranks = started.get(), rank, pid = *pid] { ranks->Watch(rank, pid); });
  }
  return started;
}

// A rank that ends early ends the others too, at once: nothing is lost that a kill would not lose,
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
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != pid) std::_Exit(kExitUnavailable);  // It died before this line.
}

}  // namespace oxbow::learner
