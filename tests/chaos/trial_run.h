// The processes of one trial, and the operations that disturb them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/chaos/evidence.h"
#include "tests/chaos/full_disk.h"
#include "tests/chaos/run_under_test.h"
#include "tests/chaos/trial.h"
#include "tests/testing/network_proxy.h"

namespace oxbow::chaos {

class TrialRun {
 public:
  // Starts the run in `directory`, which must exist and be empty.
  TrialRun(const TrialOptions& options, const TrialPlan& plan, std::filesystem::path directory);
  ~TrialRun();

  // Waits for the moment of a fault, begins it, waits, ends it.
  FaultReport Disturb(const Fault& fault);

  // Waits for the end of the run and collects what it left. A far worker must leave in order.
  Evidence Finish();

  std::filesystem::path run_directory() const { return directory_ / "run"; }

 private:
  std::vector<std::string> Arguments() const;
  bool MountDisk();
  bool StartFarWorker();
  bool AwaitMoment(const Fault& fault);
  absl::Status Begin(const Fault& fault);
  absl::Status End(const Fault& fault);
  absl::Status Signal(const Fault& fault, int signal);

  const TrialOptions options_;
  const TrialPlan plan_;
  const std::filesystem::path directory_;
  std::string no_disk_;  // Why there is no disk to fill.
  std::unique_ptr<FullDisk> disk_;
  std::unique_ptr<testing::NetworkProxy> proxy_;
  std::unique_ptr<testing::Process> far_worker_;
  std::unique_ptr<ProcessHandle> stopped_;
  std::unique_ptr<RunUnderTest> run_;
};

}  // namespace oxbow::chaos
