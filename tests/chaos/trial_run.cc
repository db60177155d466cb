// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/trial_run.h"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "run/endpoints_file.h"
#include "run/prompt_files.h"
#include "run/run_record.h"
#include "tests/chaos/checkpoint_damage.h"

namespace oxbow::chaos {
namespace {

namespace fs = std::filesystem;

constexpr char kFarWorker[] = "far";
constexpr char kDiskFile[] = "disk";
constexpr char kCopies[] = "copies";
constexpr size_t kEarlyEndsMax = 3;
constexpr absl::Duration kLeaveTimeout = absl::Seconds(40);

// How a run may end early for what its faults do.
std::map<int, std::vector<std::string>> EndsOf(const TrialPlan& plan) {
  std::map<int, std::vector<std::string>> ends;
  if (plan.Any(NeedsOwnScorer)) ends[kExitData] = {"cannot be scored", "cannot score"};
  if (plan.Has(FaultKind::kDamagedCheckpoint) || plan.Has(FaultKind::kHugeCheckpointFile)) {
    ends[kExitData].emplace_back("every checkpoint is damaged");
  }
  if (plan.Any(Drains)) ends[kExitDrained] = {"drained at step"};
  return ends;
}

RunFacts FactsOf(const TrialPlan& plan, const fs::path& source) {
  RunFacts facts{.seed = 7,
                 .steps = kTrialSteps,
                 .groups = kTrialGroups,
                 .updates = kTrialUpdates,
                 .staleness_max = plan.staleness_max,
                 .capacity = plan.capacity,
                 .shards = plan.replay_fraction > 0 ? plan.shards : 0,
                 .prompts = {},
                 .own_scorer = plan.Any(NeedsOwnScorer),
                 .drained_alone = std::all_of(plan.faults.begin(), plan.faults.end(),
                                              [](const Fault& f) { return Drains(f.kind); }),
                 .ends = EndsOf(plan)};
  const auto prompts =
      run::ReadPrompts(source / "configs/prompts/digits_train.txt", run::PromptSplit::kTrain);
  OXBOW_CHECK(prompts.ok()) << prompts.status().ToString();
  for (const v1::Prompt& prompt : *prompts) facts.prompts.push_back(prompt.id());
  return facts;
}

}  // namespace

TrialRun::TrialRun(const TrialOptions& options, const TrialPlan& plan, fs::path directory)
    : options_(options), plan_(plan), directory_(std::move(directory)) {
  if (plan_.Any(NeedsOwnScorer)) scorer_ = std::make_unique<OwnScorer>();
  std::vector<std::string> argv = Arguments();
  if (MountDisk()) argv.push_back("--resume");  // The run's directory exists already.
  run_ = std::make_unique<RunUnderTest>(RunUnderTest::Options{.binaries = options_.binaries,
                                                              .argv = std::move(argv),
                                                              .environment = Preload(),
                                                              .directory = run_directory(),
                                                              .deadline = options_.deadline});
  if (plan_.far_worker && !StartFarWorker()) proxy_.reset();
}

TrialRun::~TrialRun() {
  run_.reset();  // Before its disk is unmounted.
}

// The environment of processes whose clock or disk the plan disturbs. The libraries that they
// preload are one list.
std::vector<std::string> TrialRun::Preload() {
  const std::string preload = "LD_PRELOAD=";
  std::vector<std::string> environment;
  std::vector<std::string> libraries;
  const auto add = [&](auto made, std::string& why_not) -> decltype(made)::value_type {
    if (!made.ok()) {
      why_not = std::string(made.status().message());
      return nullptr;
    }
    for (const std::string& variable : (*made)->environment()) {
      if (!variable.starts_with(preload)) {
        environment.push_back(variable);
      } else if (std::string library = variable.substr(preload.size());
                 !absl::c_linear_search(libraries, library)) {
        libraries.push_back(std::move(library));
      }
    }
    return *std::move(made);
  };
  const auto number = [&](const char* variable) {
    return add(PreloadedNumber::Make(options_.preloaded, variable, directory_ / variable),
               not_preloaded_);
  };
  if (plan_.Any(MovesClock)) clock_ = number(kClockAhead);
  if (plan_.Has(FaultKind::kSlowDisk)) sync_delay_ = number(kSyncDelay);
  if (plan_.Any(FailsFiles)) {
    faulty_disk_ =
        add(testing::FaultyDisk::Make(options_.disk, directory_ / kDiskFile, run_directory()),
            no_disk_);
  }
  if (!libraries.empty()) {
    environment.push_back(absl::StrCat(preload, absl::StrJoin(libraries, ":")));
  }
  return environment;
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
  if (plan_.Has(FaultKind::kLostDirectory)) {
    all.push_back(absl::StrCat("checkpoint.copy_to=", (directory_ / kCopies).string()));
  }
  if (scorer_ != nullptr) {
    all.push_back(absl::StrCat("reward.endpoints=[\"", scorer_->endpoint(), "\"]"));
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
  const fs::path place =
      whole ? run_directory() : run::ReplayDirectories(run_directory(), plan_.shards).front();
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
  if (!run_->Await([this] { return !run_->Endpoint("learner").empty(); })) return false;
  proxy_ = testing::NetworkProxy::Start("").value();
  auto worker = testing::Process::Start(
      {.argv = {(options_.binaries / "rollout_worker").string(), "--learner",
                run_->Endpoint("learner"), "--id", kFarWorker, "--log-level", "debug",
                "--log-format", "json"},
       .environment = {"OXBOW_HTTP_PROXY=1", "grpc_proxy=http://" + proxy_->endpoint(),
                       "no_grpc_proxy=", "no_proxy=", "OMP_NUM_THREADS=1",
                       "OMP_WAIT_POLICY=PASSIVE"}});
  OXBOW_CHECK(worker.ok()) << worker.status().ToString();
  far_worker_ = *std::move(worker);
  return true;
}

// The work of the run's operator: mends what the run named, and resumes it.
bool TrialRun::ResumeAfterEarlyEnd() {
  const std::optional<int> code = run_->running() ? std::nullopt : run_->AwaitEnd();
  const bool by_itself = code.value_or(0) > 0;  // Not by a signal, as at the deadline.
  if (!by_itself || EndsOf(plan_).empty() || early_ends_.size() >= kEarlyEndsMax) {
    return false;
  }
  said_ += run_->error_output();
  const auto told = run::ReadEnd(run_directory());
  early_ends_.push_back(
      {.exit_code = *code,
       .said = absl::StrCat(run_->error_output(), run_->output()),
       .step = told.has_value() ? told->step : 0,
       .checkpoint = NewestCheckpoint(run_directory() / "checkpoints").value_or(0)});
  for (const DamagedCheckpoint& damaged : damaged_checkpoints_) {
    if (absl::StrContains(run_->error_output(), "every checkpoint is damaged")) {
      SetAside(run_directory() / "checkpoints", damaged.steps);
    }
  }
  run_->Resume();
  return true;
}

std::vector<std::string> TrialRun::Neighbours() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    const bool own = name == "run" || name == "logs" || name == kClockAhead || name == kSyncDelay ||
                     name == kDiskFile || name == kCopies;
    if (!own) names.push_back(name);
  }
  return names;
}

Evidence TrialRun::Finish() {
  std::optional<int> code = run_->AwaitEnd();
  while (ResumeAfterEarlyEnd()) code = run_->AwaitEnd();
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
  evidence.libtorch_bytes = options_.libtorch_bytes;
  if (far_end.has_value()) evidence.damage.push_back(*far_end);
  evidence.second_starts = second_starts_;
  evidence.early_ends = early_ends_;
  evidence.damaged_checkpoints = damaged_checkpoints_;
  evidence.neighbours = Neighbours();
  std::ofstream(directory_ / "oxbow.log") << said_ << run_->error_output();
  return evidence;
}

}  // namespace oxbow::chaos
