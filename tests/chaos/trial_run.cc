#include "tests/chaos/trial_run.h"

#include <signal.h>

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "run/prompt_files.h"

namespace oxbow::chaos {
namespace {

namespace fs = std::filesystem;

constexpr char kFarWorker[] = "far";
constexpr absl::Duration kDelayEachWay = absl::Milliseconds(30);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(40);

RunFacts FactsOf(const TrialPlan& plan, const fs::path& source) {
  RunFacts facts{.seed = 7,
                 .steps = kTrialSteps,
                 .groups = kTrialGroups,
                 .updates = kTrialUpdates,
                 .staleness_max = plan.staleness_max,
                 .capacity = plan.capacity,
                 .prompts = {}};
  const auto prompts =
      run::ReadPrompts(source / "configs/prompts/digits_train.txt", run::PromptSplit::kTrain);
  OXBOW_CHECK(prompts.ok()) << prompts.status().ToString();
  for (const v1::Prompt& prompt : *prompts) facts.prompts.push_back(prompt.id());
  return facts;
}

// The kind and the rank of the process that a fault hits.
std::pair<const char*, int> TargetOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillLearner:
    case FaultKind::kStopLearner:
      return {"learner", 0};
    case FaultKind::kKillRank:
    case FaultKind::kStopRank:
      return {"learner", 1};
    case FaultKind::kKillWorker:
    case FaultKind::kStopWorker:
      return {"rollout_worker", 0};
    case FaultKind::kKillBuffer:
    case FaultKind::kStopBuffer:
      return {"replay_buffer", 0};
    default:
      return {"reward_server", 0};
  }
}

}  // namespace

TrialRun::TrialRun(const TrialOptions& options, const TrialPlan& plan, fs::path directory)
    : options_(options), plan_(plan), directory_(std::move(directory)) {
  std::vector<std::string> argv = Arguments();
  if (MountDisk()) argv.push_back("--resume");  // The run's directory exists already.
  run_ = std::make_unique<RunUnderTest>(RunUnderTest::Options{.binaries = options_.binaries,
                                                              .argv = std::move(argv),
                                                              .directory = run_directory(),
                                                              .deadline = options_.deadline});
  if (plan_.far_worker && !StartFarWorker()) proxy_.reset();
}

TrialRun::~TrialRun() {
  run_.reset();  // Before its disk is unmounted.
}

std::vector<std::string> TrialRun::Arguments() const {
  const std::string source = options_.source.string();
  std::vector<std::string> argv = {"train", source + "/configs/recipes/digits-op-grpo.yaml",
                                   "--no-progress"};
  std::vector<std::string> all = Overrides(plan_);
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"run.name", "run"},
           {"run.directory", directory_.string()},
           {"model.path", source + "/models/digits"},
           {"prompts.train", source + "/configs/prompts/digits_train.txt"},
           {"prompts.eval", source + "/configs/prompts/digits_eval.txt"}}) {
    all.push_back(absl::StrCat(key, "=", value));
  }
  for (std::string& override : all) {
    argv.emplace_back("--set");
    argv.push_back(std::move(override));
  }
  return argv;
}

// Logs are evidence: they are outside of a disk that will be full.
bool TrialRun::MountDisk() {
  const bool whole = plan_.Has(FaultKind::kRunDiskFull);
  if (!whole && !plan_.Has(FaultKind::kReplayDiskFull)) return false;
  const fs::path place = whole ? run_directory() : run_directory() / "replay";
  fs::create_directories(place);
  fs::create_directories(directory_ / "logs");
  absl::StatusOr<std::unique_ptr<FullDisk>> disk = FullDisk::Mount(place);
  if (disk.ok()) {
    disk_ = *std::move(disk);
  } else {
    no_disk_ = std::string(disk.status().message());
  }
  fs::create_directory_symlink(directory_ / "logs", run_directory() / "logs");
  return true;
}

// All of its calls, to any peer, go through a proxy.
bool TrialRun::StartFarWorker() {
  if (!run_->Await([this] { return !run_->learner().empty(); })) return false;
  proxy_ = testing::NetworkProxy::Start("").value();
  auto worker = testing::Process::Start(
      {.argv = {(options_.binaries / "rollout_worker").string(), "--learner", run_->learner(),
                "--id", kFarWorker, "--log-level", "debug", "--log-format", "json"},
       .environment = {"grpc_proxy=http://" + proxy_->endpoint(), "no_grpc_proxy=", "no_proxy=",
                       "OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=PASSIVE"}});
  OXBOW_CHECK(worker.ok()) << worker.status().ToString();
  far_worker_ = *std::move(worker);
  return true;
}

bool TrialRun::AwaitMoment(const Fault& fault) {
  const auto come = [&] {
    return fault.after_steps == 0 ? !run_->Processes("learner").empty()
                                  : run_->progress().steps >= fault.after_steps;
  };
  if (!run_->Await(come)) return false;
  run_->Await([] { return false; }, fault.delay);
  return run_->running();
}

FaultReport TrialRun::Disturb(const Fault& fault) {
  FaultReport report{.fault = fault};
  if (!AwaitMoment(fault)) return report;
  const uint64_t lines = run_->progress().lines;
  const absl::Duration began = Clock::Steady().Now();
  absl::Duration ends = began + fault.lasts;
  const auto look = [&] {
    if (!report.to_next_step.has_value() && run_->progress().lines > lines) {
      report.to_next_step = Clock::Steady().Now() - began;
    }
    return false;
  };
  absl::Status status = Begin(fault);
  if (status.ok() && fault.lasts > absl::ZeroDuration()) {
    run_->Await(look, ends - Clock::Steady().Now());
    status = End(fault);
  }
  if (absl::IsNotFound(status)) return report;  // The run was over.
  report.fate = status.ok() ? FaultReport::Fate::kDone : FaultReport::Fate::kNotPossible;
  report.why = std::string(status.message());
  run_->Await([&] {
    look();
    return report.to_next_step.has_value();
  });
  return report;
}

absl::Status TrialRun::Signal(const Fault& fault, int signal) {
  const auto [kind, rank] = TargetOf(fault.kind);
  std::vector<pid_t> found;
  const auto there = [&, kind = kind, rank = rank] {
    found = run_->Processes(kind, rank);
    return !found.empty();
  };
  if (!run_->Await(there)) return absl::NotFoundError("the run is over");
  stopped_ = std::make_unique<ProcessHandle>(found[plan_.seed % found.size()]);
  return stopped_->Signal(signal) ? absl::OkStatus() : absl::NotFoundError("it is gone");
}

absl::Status TrialRun::Begin(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kDelay:
    case FaultKind::kDrop:
    case FaultKind::kReset:
    case FaultKind::kHalfOpen:
      if (proxy_ == nullptr) return absl::NotFoundError("the run is over");
      if (fault.kind == FaultKind::kDelay) proxy_->Delay(kDelayEachWay);
      if (fault.kind == FaultKind::kDrop) proxy_->Drop();
      if (fault.kind == FaultKind::kReset) proxy_->Reset();
      if (fault.kind == FaultKind::kHalfOpen) proxy_->HalfOpen();
      return absl::OkStatus();
    case FaultKind::kReplayDiskFull:
    case FaultKind::kRunDiskFull:
      return disk_ != nullptr ? disk_->Fill() : absl::PermissionDeniedError(no_disk_);
    case FaultKind::kStopLearner:
    case FaultKind::kStopRank:
    case FaultKind::kStopWorker:
    case FaultKind::kStopBuffer:
    case FaultKind::kStopReward:
      return Signal(fault, SIGSTOP);
    default:
      return Signal(fault, SIGKILL);
  }
}

absl::Status TrialRun::End(const Fault& fault) {
  if (fault.kind >= FaultKind::kReplayDiskFull) return disk_->Empty();
  if (fault.kind >= FaultKind::kDelay) {
    proxy_->Heal();
  } else {
    stopped_->Signal(SIGCONT);  // Another process may have killed it.
  }
  return absl::OkStatus();
}

Evidence TrialRun::Finish() {
  const std::optional<int> code = run_->AwaitEnd();
  std::optional<std::string> far_end;
  if (far_worker_ != nullptr) {
    far_worker_->Kill(SIGTERM);
    const auto left = far_worker_->WaitExit(kLeaveTimeout);
    if (!left.ok() || *left != 0) {
      far_end = left.ok() ? absl::StrCat("far worker: exit code ", *left)
                          : std::string("far worker: did not leave after SIGTERM");
    }
    std::ofstream(run_directory() / "logs" / absl::StrCat(kFarWorker, ".log"))
        << far_worker_->error_output();
  }
  Evidence evidence = ReadEvidence(run_directory());
  evidence.facts = FactsOf(plan_, options_.source);
  evidence.exit_code = code;
  evidence.resident_peaks = run_->resident_peaks();
  if (far_end.has_value()) evidence.damage.push_back(*far_end);
  std::ofstream(directory_ / "oxbow.log") << run_->error_output();
  return evidence;
}

}  // namespace oxbow::chaos
