// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/gpu_processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "rpc/stop_signal.h"

namespace oxbow::rollout {
namespace {

constexpr int kDeathsMax = 5;
constexpr absl::Duration kBackoffFirst = absl::Seconds(1);
constexpr absl::Duration kBackoffMax = absl::Minutes(10);
constexpr absl::Duration kSteady = absl::Minutes(1);  // A life that forgives earlier deaths.
// How long the others have to see by themselves that the run has ended.
constexpr absl::Duration kLast = absl::Seconds(30);
constexpr int kSignalBase = 128;

class GpuProcesses {
 public:
  GpuProcesses(const std::vector<GpuProcess>& processes, std::filesystem::path binary,
               const Clock& clock)
      : processes_(processes), binary_(std::move(binary)), clock_(clock) {
    for (size_t i = 0; i < processes_.size(); ++i) due_[i] = clock_.Now();
    restarts_.resize(processes_.size());
  }

  absl::Status Run() {
    sigset_t signals = rpc::StopSignals();
    sigaddset(&signals, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    while (!due_.empty() || !running_.empty()) {
      StartDue();
      const int signal = Next(signals);
      if (signal > 0 && signal != SIGCHLD) Stop(absl::StrCat("signal ", signal));
      Reap();
      if (!stopping_ && clock_.Now() >= all_end_) Stop("another GPU's worker has ended in order");
    }
    return result_;
  }

 private:
  void StartDue() {
    const absl::Duration now = clock_.Now();
    for (size_t i = 0; i < processes_.size(); ++i) {
      const auto found = due_.find(i);
      if (found == due_.end() || found->second > now) continue;
      due_.erase(found);
      const absl::StatusOr<pid_t> pid = Start(processes_[i]);
      restarts_[i].Started(now);
      if (pid.ok()) {
        running_[*pid] = i;
        OXBOW_LOG(Info) << "started" << Field("gpu", processes_[i].name) << Field("pid", *pid);
      } else {
        Ended(i, kExitUnavailable, absl::StrCat("cannot start: ", pid.status().message()));
      }
    }
  }

  // oxbow_spawn ties its life to this process.
  absl::StatusOr<pid_t> Start(const GpuProcess& process) const {
    const std::filesystem::path spawner = binary_.parent_path() / "oxbow_spawn";
    std::vector<std::string> argv = {spawner, absl::StrCat(getpid()), binary_};
    argv.insert(argv.end(), process.arguments.begin(), process.arguments.end());
    return Spawn(
        {.binary = spawner, .argv = argv, .own_group = true, .signals = ChildSignals::kUnblocked});
  }

  // A signal of the set, or 0 when a start or the end is due.
  int Next(const sigset_t& signals) const {
    absl::Duration first = stopping_ ? absl::InfiniteDuration() : all_end_;
    for (const auto& [i, due] : due_) first = std::min(first, due);
    if (first == absl::InfiniteDuration()) return sigwaitinfo(&signals, nullptr);
    const timespec wait = absl::ToTimespec(std::max(first - clock_.Now(), absl::ZeroDuration()));
    return std::max(0, sigtimedwait(&signals, nullptr, &wait));
  }

  void Stop(const std::string& why) {
    OXBOW_LOG(Info) << "stopping" << Field("reason", why);
    due_.clear();
    stopping_ = true;
    for (const auto& [pid, i] : running_) ::kill(pid, SIGTERM);
  }

  void Reap() {
    int state = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &state, WNOHANG)) > 0;) {
      const auto found = running_.find(pid);
      if (found == running_.end()) continue;
      const size_t i = found->second;
      running_.erase(found);
      const int code = WIFSIGNALED(state) ? kSignalBase + WTERMSIG(state) : WEXITSTATUS(state);
      Ended(i, code,
            code > kSignalBase ? absl::StrCat("ended by signal ", code - kSignalBase)
                               : absl::StrCat("ended with exit code ", code));
    }
  }

  void Ended(size_t i, int code, const std::string& how) {
    if (stopping_ && (code == kExitOk || code == kSignalBase + SIGTERM)) return;
    if (code == kExitOk) {  // The run has ended, and one that has just started may not see it.
      all_end_ = std::min(all_end_, clock_.Now() + kLast);
      due_.clear();
    }
    const absl::Duration due =
        stopping_ ? absl::InfiniteDuration()
                  : restarts_[i].DueAfter(code, clock_.Now(), /*beside=*/!running_.empty());
    if (due < absl::InfiniteDuration()) {
      due_[i] = due;
      OXBOW_LOG(Warning) << how << ", starts again" << Field("gpu", processes_[i].name);
    } else if (code != kExitOk && result_.ok()) {
      result_ = ErrorOf(code, absl::StrCat("the worker of ", processes_[i].name, " ", how));
    }
  }

  const std::vector<GpuProcess>& processes_;
  const std::filesystem::path binary_;
  const Clock& clock_;
  std::vector<Restarts> restarts_;
  std::map<size_t, absl::Duration> due_;  // By process: when it starts.
  std::map<pid_t, size_t> running_;
  absl::Duration all_end_ = absl::InfiniteDuration();  // When all are stopped.
  bool stopping_ = false;
  absl::Status result_;
};

}  // namespace

absl::Duration Restarts::DueAfter(int exit_code, absl::Duration now, bool beside) {
  if (exit_code == kExitOk || exit_code == kExitUnavailable) return absl::InfiniteDuration();
  if (now - started_ >= kSteady) deaths_ = 0;
  ++deaths_;
  if (!beside && (IsFinal(exit_code) || deaths_ >= kDeathsMax)) return absl::InfiniteDuration();
  return now + std::min(kBackoffFirst * (1 << std::min(deaths_ - 1, 20)), kBackoffMax);
}

absl::Status RunOnGpus(const std::vector<GpuProcess>& processes, const Clock& clock) {
  OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path binary, ExecutablePath());
  return GpuProcesses(processes, binary, clock).Run();
}

}  // namespace oxbow::rollout
