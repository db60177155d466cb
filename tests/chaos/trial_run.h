// SPDX-License-Identifier: Apache-2.0
// The processes of one trial, and the operations that disturb them.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/chaos/evidence.h"
#include "tests/chaos/full_disk.h"
#include "tests/chaos/own_scorer.h"
#include "tests/chaos/preloaded_number.h"
#include "tests/chaos/process_faults.h"
#include "tests/chaos/run_under_test.h"
#include "tests/chaos/trial.h"
#include "tests/testing/bad_worker.h"
#include "tests/testing/faulty_disk.h"
#include "tests/testing/network_proxy.h"

namespace oxbow::chaos {

class TrialRun {
 public:
  // Starts the run in `directory`, which must exist and be empty.
  TrialRun(const TrialOptions& options, const TrialPlan& plan, std::filesystem::path directory);
  ~TrialRun();

  // Waits for the moment of the first fault and begins it, then the others, each after its delay;
  // ends each after its time. Then waits for the next step.
  std::vector<FaultReport> Disturb(std::span<const Fault> together);

  // Waits for the end of the run and collects what it left. A far worker must leave in order.
  Evidence Finish();

  std::filesystem::path run_directory() const { return directory_ / "run"; }

 private:
  // A fault that has begun: its report, and when and how it ends.
  struct Lasting {
    FaultReport* report;
    absl::Duration began;
    uint64_t lines;  // In the step log at its begin.
    TakeBack take_back;
  };

  std::vector<std::string> Arguments() const;
  bool MountDisk();
  std::vector<std::string> Preload();
  bool StartFarWorker();
  bool ResumeAfterEarlyEnd();
  std::vector<std::string> Neighbours() const;

  // trial_faults.cc
  bool AwaitMoment(const Fault& fault);
  void BeginInto(FaultReport& report, std::vector<Lasting>& lasting);
  void EndAll(std::vector<Lasting>& lasting);
  bool LookForSteps(const std::vector<Lasting>& lasting);
  absl::StatusOr<TakeBack> Begin(const Fault& fault);
  absl::StatusOr<TakeBack> HangSampler();
  absl::StatusOr<TakeBack> LoopWorker();
  absl::StatusOr<TakeBack> BeginAtProcess(const Fault& fault);
  absl::StatusOr<TakeBack> BeginAtNetwork(const Fault& fault);
  absl::StatusOr<TakeBack> BeginCrowd(const Fault& fault);
  absl::StatusOr<TakeBack> AddBadWorker(testing::BadWorker::Kind kind);
  absl::StatusOr<TakeBack> DamageCheckpoint(const Fault& fault);
  absl::StatusOr<TakeBack> StartSecond();
  absl::StatusOr<TakeBack> LoseDirectory();
  absl::StatusOr<pid_t> AwaitProcess(const std::string& kind, int rank);

  const TrialOptions options_;
  const TrialPlan plan_;
  const std::filesystem::path directory_;
  std::string no_disk_;        // Why there is no disk to fill.
  std::string not_preloaded_;  // Why there is no clock to set, and no disk that is slow.
  std::unique_ptr<FullDisk> disk_;
  std::unique_ptr<PreloadedNumber> clock_;
  std::unique_ptr<PreloadedNumber> sync_delay_;
  std::unique_ptr<testing::FaultyDisk> faulty_disk_;
  std::unique_ptr<OwnScorer> scorer_;
  std::unique_ptr<testing::NetworkProxy> proxy_;
  std::unique_ptr<testing::Process> far_worker_;
  std::unique_ptr<RunUnderTest> run_;
  // How long a fault may wait for what it disturbs. A second fault waits until the first ends: what
  // it waits for may come only then.
  absl::Duration begins_within_ = absl::InfiniteDuration();
  std::string said_;  // By the run's earlier starts.
  std::vector<SecondStart> second_starts_;
  std::vector<EarlyEnd> early_ends_;
  std::vector<DamagedCheckpoint> damaged_checkpoints_;
};

}  // namespace oxbow::chaos
