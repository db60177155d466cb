// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/gpu_processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "rpc/stop_signal.h"

namespace oxbow::rollout {
namespace {

constexpr int kTasksMax = 1 << 16;

std::optional<int> NumberOf(const parallel::EnvironmentLookup& lookup, const std::string& name) {
  int number = 0;
  const std::optional<std::string> text = lookup(name);
  if (!text.has_value() || !absl::SimpleAtoi(*text, &number) || number < 0) return std::nullopt;
  return number;
}

// "4(x2),1" is 4, 4 and 1 tasks on three nodes. 0 if it does not say it of `node`.
int TasksOn(int node, absl::string_view per_node) {
  for (const absl::string_view part : absl::StrSplit(per_node, ',')) {
    const std::vector<absl::string_view> words = absl::StrSplit(part, "(x");
    int tasks = 0, nodes = 1;
    if (words.size() > 2 || !absl::SimpleAtoi(words[0], &tasks)) return 0;
    if (words.size() == 2 && !absl::SimpleAtoi(absl::StripSuffix(words[1], ")"), &nodes)) return 0;
    if (node < nodes) return std::clamp(tasks, 0, kTasksMax);
    node -= nodes;
  }
  return 0;
}

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--gpus: ", what));
}

absl::StatusOr<std::vector<int>> Listed(const std::string& asked, int count) {
  std::vector<int> gpus;
  for (const absl::string_view word : absl::StrSplit(asked, ',')) {
    int gpu = 0;
    if (!absl::SimpleAtoi(word, &gpu) || gpu < 0) {
      return Bad(absl::StrCat("all, or numbers such as 0,1: got ", asked));
    }
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) {
      return Bad(absl::StrCat("GPU ", gpu, " is named twice"));
    }
    if (gpu >= count) {
      return absl::UnavailableError(
          absl::StrCat("--gpus: no GPU ", gpu, ", this machine has ", count));
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

// "host:7073" as "host:7074" for 1; an address with port 0 or without one as it is.
std::string Moved(const std::string& address, int by) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port == 0) {
    return address;
  }
  return absl::StrCat(address.substr(0, colon + 1), port + by);
}

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

TaskOnNode ReadSlurmTask(const parallel::EnvironmentLookup& lookup) {
  const std::optional<int> index = NumberOf(lookup, "SLURM_LOCALID");
  if (!index.has_value()) return {};
  const int node = NumberOf(lookup, "SLURM_NODEID").value_or(0);
  const int tasks = TasksOn(node, lookup("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  return {.index = *index,
          .tasks = std::max(tasks, *index + 1),
          .bound = !lookup("SLURM_GPUS_PER_TASK").value_or("").empty()};
}

absl::StatusOr<std::vector<int>> GpusOf(const std::string& asked, int count,
                                        const TaskOnNode& task) {
  if (count == 0) return Bad("this machine has no GPU; --device cpu samples on the CPU");
  if (asked != "all") return Listed(asked, count);
  if (!task.bound && count < task.tasks) return std::vector<int>{task.index % count};
  std::vector<int> gpus;
  for (int gpu = 0; gpu < count; ++gpu) {
    if (task.bound || gpu % task.tasks == task.index) gpus.push_back(gpu);
  }
  return gpus;
}

std::vector<std::string> ArgumentsOfGpu(const std::vector<std::string>& arguments, int gpu,
                                        int index) {
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t sign = arguments[i].find('=');
    const std::string flag = arguments[i].substr(0, sign);
    const bool apart = sign == std::string::npos && i + 1 < arguments.size();
    const bool mine = flag == "--gpus" || flag == "--id" || absl::EndsWith(flag, "listen");
    if (!mine) {
      result.push_back(arguments[i]);
      continue;
    }
    const std::string value = apart ? arguments[++i] : arguments[i].substr(sign + 1);
    if (flag == "--id") {
      result.insert(result.end(), {flag, absl::StrCat(value, "-gpu", gpu)});
    } else if (flag != "--gpus") {
      result.insert(result.end(), {flag, Moved(value, index)});
    }
  }
  result.insert(result.end(), {"--device", absl::StrCat("cuda:", gpu)});
  return result;
}

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
