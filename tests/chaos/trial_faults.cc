// SPDX-License-Identifier: Apache-2.0
// How the faults of a trial begin and end.
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "tests/chaos/checkpoint_damage.h"
#include "tests/chaos/crowd.h"
#include "tests/chaos/trial_run.h"
#include "tests/testing/eventually.h"

namespace oxbow::chaos {
namespace {

constexpr absl::Duration kDelayEachWay = absl::Milliseconds(30);
constexpr int64_t kClockStepSeconds = 3600;
constexpr int64_t kSlowSyncMilliseconds = 4000;  // More than a step waits for its replay buffer.
constexpr absl::Duration kSecondTimeout = absl::Seconds(30);
constexpr char kTensorName[] = "transformer_blocks.";  // In every manifest of weights.

absl::Duration Now() { return Clock::Steady().Now(); }

TakeBack Nothing() { return nullptr; }

// The kind and the rank of the process that a fault hits.
std::pair<const char*, int> TargetOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillLearner:
    case FaultKind::kStopLearner:
    case FaultKind::kNoDescriptorsLearner:
    case FaultKind::kDrainLearner:
    case FaultKind::kDrainStart:
      return {"learner", 0};
    case FaultKind::kKillRank:
    case FaultKind::kStopRank:
    case FaultKind::kDrainRank:
      return {"learner", 1};
    case FaultKind::kKillWorker:
    case FaultKind::kStopWorker:
    case FaultKind::kNoDescriptorsWorker:
      return {"rollout_worker", 0};
    case FaultKind::kKillBuffer:
    case FaultKind::kStopBuffer:
    case FaultKind::kNoDescriptorsBuffer:
    case FaultKind::kNoMemoryBuffer:
    case FaultKind::kStopBufferAtCheckpoint:
    case FaultKind::kKillBufferAtCheckpoint:
      return {"replay_buffer", 0};
    default:
      return {"reward_server", 0};
  }
}

}  // namespace

bool TrialRun::AwaitMoment(const Fault& fault) {
  const auto come = [&] {
    return fault.after_steps == 0 ? !run_->Processes("learner").empty()
                                  : run_->progress().steps >= fault.after_steps;
  };
  if (!run_->Await(come)) return false;
  run_->Await([] { return false; }, fault.delay);
  return run_->running();
}

std::vector<FaultReport> TrialRun::Disturb(std::span<const Fault> together) {
  std::vector<FaultReport> reports;
  for (const Fault& fault : together) reports.push_back({.fault = fault});
  if (!AwaitMoment(together.front())) return reports;
  std::vector<Lasting> begun;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (i > 0) run_->Await([&] { return LookForSteps(begun); }, together[i].delay);
    BeginInto(reports[i], begun);
  }
  EndAll(begun);
  if (!run_->Await([&] { return LookForSteps(begun); })) {
    // An end that the faults explain is followed by another start, and by its steps.
    if (ResumeAfterEarlyEnd()) run_->Await([&] { return LookForSteps(begun); });
  }
  return reports;
}

void TrialRun::BeginInto(FaultReport& report, std::vector<Lasting>& lasting) {
  const uint64_t lines = run_->progress().lines;
  const absl::Duration began = Now();
  begins_within_ = absl::InfiniteDuration();
  for (const Lasting& one : lasting) {
    const absl::Duration lasts = one.report->fault.lasts;
    if (lasts > absl::ZeroDuration())
      begins_within_ = std::min(begins_within_, one.began + lasts - began);
  }
  absl::StatusOr<TakeBack> take_back = Begin(report.fault);
  if (absl::IsNotFound(take_back.status())) return;  // There was nothing to disturb in time.
  report.fate = take_back.ok() ? FaultReport::Fate::kDone : FaultReport::Fate::kNotPossible;
  report.why = std::string(take_back.status().message());
  if (take_back.ok()) lasting.push_back({&report, began, lines, *std::move(take_back)});
}

void TrialRun::EndAll(std::vector<Lasting>& lasting) {
  std::vector<Lasting*> order;
  for (Lasting& one : lasting) order.push_back(&one);
  const auto end = [](const Lasting* one) { return one->began + one->report->fault.lasts; };
  std::sort(order.begin(), order.end(),
            [&](const Lasting* a, const Lasting* b) { return end(a) < end(b); });
  for (Lasting* one : order) {
    if (one->take_back == nullptr) continue;
    run_->Await(
        [&] {
          LookForSteps(lasting);
          return false;
        },
        end(one) - Now());
    if (const absl::Status status = one->take_back(); !status.ok()) {
      one->report->why = std::string(status.message());
    }
  }
}

// Notes the first step after each begin; true when each fault has one.
bool TrialRun::LookForSteps(const std::vector<Lasting>& lasting) {
  const uint64_t lines = run_->progress().lines;
  bool all = true;
  for (const Lasting& one : lasting) {
    std::optional<absl::Duration>& next = one.report->to_next_step;
    if (!next.has_value() && lines > one.lines) next = Now() - one.began;
    all = all && next.has_value();
  }
  return all;
}

absl::StatusOr<TakeBack> TrialRun::Begin(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kDelay:
    case FaultKind::kDrop:
    case FaultKind::kReset:
    case FaultKind::kHalfOpen:
    case FaultKind::kDamagedManifest:
      return BeginAtNetwork(fault);
    case FaultKind::kReplayDiskFull:
    case FaultKind::kRunDiskFull:
      if (disk_ == nullptr) return absl::PermissionDeniedError(no_disk_);
      OXBOW_RETURN_IF_ERROR(disk_->Fill());
      return [this] { return disk_->Empty(); };
    case FaultKind::kRunDiskFullForLong:
    case FaultKind::kRunDiskErrors:
    case FaultKind::kRunDiskStale:
      if (faulty_disk_ == nullptr) return absl::PermissionDeniedError(no_disk_);
      faulty_disk_->Fail(fault.kind == FaultKind::kRunDiskErrors  ? EIO
                         : fault.kind == FaultKind::kRunDiskStale ? ESTALE
                                                                  : ENOSPC);
      return [this] {
        faulty_disk_->Heal();
        return absl::OkStatus();
      };
    case FaultKind::kClockForward:
    case FaultKind::kClockBack:
      if (clock_ == nullptr) return absl::PermissionDeniedError(not_preloaded_);
      clock_->Set(fault.kind == FaultKind::kClockForward ? kClockStepSeconds : -kClockStepSeconds);
      return [this] {
        clock_->Set(0);
        return absl::OkStatus();
      };
    case FaultKind::kSlowDisk:
      if (sync_delay_ == nullptr) return absl::PermissionDeniedError(not_preloaded_);
      sync_delay_->Set(kSlowSyncMilliseconds);
      return [this] {
        sync_delay_->Set(0);
        return absl::OkStatus();
      };
    case FaultKind::kNanForHalf:
    case FaultKind::kNanForAll:
      scorer_->Answer(fault.kind == FaultKind::kNanForAll ? OwnScorer::Nan::kAlways
                                                          : OwnScorer::Nan::kForHalf);
      return [this] {
        scorer_->Answer(OwnScorer::Nan::kNever);
        return absl::OkStatus();
      };
    case FaultKind::kCrowdLearner:
    case FaultKind::kCrowdBuffer:
    case FaultKind::kCrowdReward:
      return BeginCrowd(fault);
    case FaultKind::kDamagedCheckpoint:
    case FaultKind::kHugeCheckpointFile:
      return DamageCheckpoint(fault);
    case FaultKind::kSecondSupervisor:
      return StartSecond();
    case FaultKind::kFailingWorker:
      return AddBadWorker(testing::BadWorker::Kind::kFails);
    case FaultKind::kDeafWorker:
      return AddBadWorker(testing::BadWorker::Kind::kReadsNothing);
    case FaultKind::kOtherRevision:
      return AddBadWorker(testing::BadWorker::Kind::kOtherRevision);
    case FaultKind::kLostDirectory:
      return LoseDirectory();
    case FaultKind::kNoDescriptorsSupervisor:
      return TakeDescriptors(run_->pid());
    case FaultKind::kHangSampler:
      return HangSampler();
    case FaultKind::kLoopWorker:
      return LoopWorker();
    default:
      return BeginAtProcess(fault);
  }
}

absl::StatusOr<pid_t> TrialRun::AwaitProcess(const std::string& kind, int rank) {
  std::vector<pid_t> found;
  const auto there = [&] {
    found = run_->Processes(kind, rank);
    return !found.empty();
  };
  if (!run_->Await(there, begins_within_)) return absl::NotFoundError("there is none in time");
  return found[plan_.seed % found.size()];
}

// A worker that has just started has no sampler yet.
absl::StatusOr<TakeBack> TrialRun::HangSampler() {
  absl::StatusOr<TakeBack> hangs;
  const auto hung = [&] {
    const std::vector<pid_t> found = run_->Processes("rollout_worker");
    if (found.empty()) return false;
    hangs = HangThread(found[plan_.seed % found.size()], "sampler");
    return !absl::IsNotFound(hangs.status());
  };
  if (!run_->Await(hung, begins_within_)) return absl::NotFoundError("there is none in time");
  return hangs;
}

// Always the same one: the others of the run live.
absl::StatusOr<TakeBack> TrialRun::LoopWorker() {
  OXBOW_RETURN_IF_ERROR(AwaitProcess("rollout_worker", /*rank=*/0).status());
  struct Killer {
    absl::Notification enough;
    std::thread thread;
  };
  const auto killer = std::make_shared<Killer>();  // Shared: functions are copied.
  killer->thread = std::thread([this, all = killer.get()] {
    while (!all->enough.WaitForNotificationWithTimeout(absl::Milliseconds(20))) {
      for (const pid_t process : run_->Processes("rollout_worker")) {
        std::ifstream arguments(absl::StrCat("/proc/", process, "/cmdline"));
        const std::string text(std::istreambuf_iterator<char>(arguments), {});
        if (absl::StrContains(text, "rollout_worker-0")) ProcessHandle(process).Signal(SIGKILL);
      }
    }
  });
  return [killer] {
    killer->enough.Notify();
    killer->thread.join();
    return absl::OkStatus();
  };
}

absl::StatusOr<TakeBack> TrialRun::BeginAtProcess(const Fault& fault) {
  const auto [kind, rank] = TargetOf(fault.kind);
  OXBOW_ASSIGN_OR_RETURN(const pid_t process, AwaitProcess(kind, rank));
  switch (fault.kind) {
    case FaultKind::kStopLearner:
    case FaultKind::kStopRank:
    case FaultKind::kStopWorker:
    case FaultKind::kStopBuffer:
    case FaultKind::kStopReward:
    case FaultKind::kStopBufferAtCheckpoint:
      return StopProcess(process);
    case FaultKind::kNoDescriptorsLearner:
    case FaultKind::kNoDescriptorsWorker:
    case FaultKind::kNoDescriptorsBuffer:
    case FaultKind::kNoDescriptorsReward:
      return TakeDescriptors(process);
    case FaultKind::kNoMemoryReward:
    case FaultKind::kNoMemoryBuffer:
      return TakeMemory(process);
    default:
      if (!ProcessHandle(process).Signal(Drains(fault.kind) ? SIGTERM : SIGKILL)) {
        return absl::NotFoundError("it is gone");
      }
      return Nothing();
  }
}

absl::StatusOr<TakeBack> TrialRun::BeginAtNetwork(const Fault& fault) {
  if (proxy_ == nullptr) return absl::NotFoundError("the run is over");
  if (fault.kind == FaultKind::kDelay) proxy_->Delay(kDelayEachWay);
  if (fault.kind == FaultKind::kDrop) proxy_->Drop();
  if (fault.kind == FaultKind::kReset) proxy_->Reset();
  if (fault.kind == FaultKind::kHalfOpen) proxy_->HalfOpen();
  if (fault.kind == FaultKind::kDamagedManifest) proxy_->Garble(kTensorName);
  return [this] {
    proxy_->Heal();
    return absl::OkStatus();
  };
}

absl::StatusOr<TakeBack> TrialRun::BeginCrowd(const Fault& fault) {
  std::string service = "learner";
  Crowd::Methods methods = {"/oxbow.v1.Coordinator/Work", "/oxbow.v1.Coordinator/Status"};
  if (fault.kind == FaultKind::kCrowdBuffer) {
    service = plan_.shards == 1 ? "replay_buffer" : "replay_buffer-00";
    methods = {"/oxbow.v1.ReplayBuffer/Offer", "/oxbow.v1.ReplayBuffer/Info"};
  } else if (fault.kind == FaultKind::kCrowdReward) {
    service = "reward_server-0";
    methods = {"/oxbow.v1.Reward/Score", "/oxbow.v1.Reward/Describe"};
  }
  if (!run_->Await([&] { return !run_->Endpoint(service).empty(); }, begins_within_)) {
    return absl::NotFoundError("the run is over");
  }
  // Shared: functions are copied.
  auto crowd = std::make_shared<Crowd>(run_->Endpoint(service), std::move(methods));
  return [crowd]() mutable {
    crowd.reset();
    return absl::OkStatus();
  };
}

absl::StatusOr<TakeBack> TrialRun::AddBadWorker(testing::BadWorker::Kind kind) {
  if (!run_->Await([&] { return !run_->Endpoint("learner").empty(); }, begins_within_)) {
    return absl::NotFoundError("the run is over");
  }
  auto worker = std::make_shared<testing::BadWorker>(run_->Endpoint("learner"), kind);
  return [worker]() mutable {
    worker.reset();
    return absl::OkStatus();
  };
}

// The newest one is damaged and the learner killed, so that it is asked for.
absl::StatusOr<TakeBack> TrialRun::DamageCheckpoint(const Fault& fault) {
  OXBOW_ASSIGN_OR_RETURN(const pid_t learner, AwaitProcess("learner", /*rank=*/0));
  const std::filesystem::path checkpoints = run_directory() / "checkpoints";
  OXBOW_ASSIGN_OR_RETURN(const uint64_t steps, fault.kind == FaultKind::kDamagedCheckpoint
                                                   ? FlipBit(checkpoints, plan_.seed % 2 == 1)
                                                   : GrowBeyond4Gib(checkpoints));
  ProcessHandle(learner).Signal(SIGKILL);
  damaged_checkpoints_.push_back({.steps = steps, .epoch = run_->progress().epoch});
  return Nothing();
}

// The machine is gone with all processes and all that the run has written, but for its buffer. What
// the judge needs is left as well. Then its operator puts the copies back and resumes it.
absl::StatusOr<TakeBack> TrialRun::LoseDirectory() {
  namespace fs = std::filesystem;
  fs::path copies;
  const auto copied = [&] {
    std::error_code error;
    for (fs::recursive_directory_iterator entry(directory_ / "copies", error), end;
         !error && entry != end; entry.increment(error)) {
      if (entry->path().filename() == "newest") copies = entry->path().parent_path();
    }
    return !copies.empty();
  };
  if (!run_->Await(copied, begins_within_)) return absl::NotFoundError("there is no copy in time");
  std::vector<pid_t> processes = {run_->pid()};
  for (const char* kind : {"learner", "replay_buffer", "reward_server", "rollout_worker"}) {
    for (const int rank : {0, 1}) {
      for (const pid_t process : run_->Processes(kind, rank)) processes.push_back(process);
    }
  }
  said_ += run_->error_output();
  ProcessHandle(run_->pid()).Signal(SIGKILL);
  const auto gone = [](pid_t process) { return AnonymousBytesOf(process) == 0; };
  testing::Eventually([&] { return std::all_of(processes.begin(), processes.end(), gone); });
  run_->AwaitEnd();
  for (const auto& entry : fs::directory_iterator(run_directory())) {
    const std::string name = entry.path().filename().string();
    const bool left = name.starts_with("replay") || name == "logs" || name == "steps.jsonl" ||
                      name == "metrics.jsonl";
    if (!left) fs::remove_all(entry.path());
  }
  fs::create_directories(run_directory() / "checkpoints");
  for (const auto& entry : fs::directory_iterator(copies)) {
    if (!entry.path().filename().string().starts_with("step_")) continue;
    fs::copy(entry.path(), run_directory() / "checkpoints" / entry.path().filename(),
             fs::copy_options::recursive);
  }
  run_->Resume();
  return Nothing();
}

absl::StatusOr<TakeBack> TrialRun::StartSecond() {
  // Without a flag it is refused before it looks for a lock, whether the run lives or not.
  constexpr const char* kFlags[] = {"--resume", "--overwrite", "--set-aside"};
  SecondStart second{.flag = kFlags[plan_.seed % 3], .exit_code = std::nullopt, .said = {}};
  std::vector<std::string> argv = Arguments();
  argv.insert(argv.begin(), (options_.binaries / "oxbow").string());
  argv.push_back(second.flag);
  OXBOW_ASSIGN_OR_RETURN(const auto process, testing::Process::Start({.argv = std::move(argv)}));
  run_->Await([&] { return !process->running(); }, kSecondTimeout);
  const auto code = process->WaitExit(kSecondTimeout);
  if (code.ok()) second.exit_code = *code;
  second.said = process->error_output();
  second_starts_.push_back(std::move(second));
  return Nothing();
}

}  // namespace oxbow::chaos
