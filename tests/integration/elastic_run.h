// SPDX-License-Identifier: Apache-2.0
// A run whose workers are started and stopped by the test: `oxbow train` starts none.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/training_run.h"

namespace oxbow::testing {

class ElasticRun {
 public:
  explicit ElasticRun(std::vector<std::string> overrides);

  // Starts a worker with this name and waits until it runs.
  Process& Join(const std::string& name, std::vector<std::string> environment = {});
  Process& worker(const std::string& name) { return *workers_.at(name).process; }

  // A number from a /metrics page; -1 while it is not available.
  double Learner(const std::string& series) const;
  double Worker(const std::string& name, const std::string& series) const;

  // Wait until the number is at least `least`. False after `timeout`, or if the run ends.
  bool AwaitLearner(const std::string& series, double least,
                    absl::Duration timeout = absl::Seconds(20));
  bool AwaitWorker(const std::string& name, const std::string& series, double least,
                   absl::Duration timeout = absl::Seconds(20));
  // Waits for this many more committed steps.
  bool AwaitSteps(int64_t more);

  const std::string& learner() const { return learner_; }  // host:port
  TrainingRun& run() { return run_; }
  std::string log() const;  // The learner's log.

  size_t StepsCommitted() const { return StepLog().size(); }
  // How often each group is in the step log, and the highest attempt of all groups.
  std::map<uint64_t, int> GroupsTrained() const;
  uint64_t HighestAttempt() const;

 private:
  struct Joined {
    std::unique_ptr<Process> process;
    std::string metrics;
  };
  template <typename Read>
  bool Await(Read read, double least, absl::Duration timeout);
  bool FindLearner();
  std::vector<nlohmann::json> StepLog() const;

  TrainingRun run_;
  std::string learner_;
  std::string learner_metrics_;
  std::map<std::string, Joined> workers_;
};

}  // namespace oxbow::testing
