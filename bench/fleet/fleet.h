// SPDX-License-Identifier: Apache-2.0
// The processes of a simulated fleet, as a supervisor sees them: it starts all, kills what the load
// says once steps are committed, starts the learner again when a rank was lost, and adds up what
// the processes say of themselves at their end.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/fleet/load.h"
#include "tests/testing/process.h"

namespace oxbow::bench {

class Fleet {
 public:
  // `argv` is that of this process: the others are the same program with a role, and fleet_reward
  // beside it.
  Fleet(const Load& load, std::vector<std::string> argv);

  // Starts everything. Errors name the process that did not start.
  absl::Status Start();
  // Until the learner says that all steps are committed, and all processes have ended.
  // kDeadlineExceeded after load.seconds_max; kInternal if a process ended as it should not.
  absl::Status Run();

  // Numbers that the processes of a role printed, one line each.
  struct Account {
    double mib_most = 0;  // One process's.
    double cpu_s = 0;     // All together.
    std::map<std::string, uint64_t> sums;
    std::map<std::string, uint64_t> refused;  // By call.
    // Leader: the weights that it published last. Hosts: the oldest that one of their workers
    // was told last; and when, by the machine's steady clock.
    double version = 0;
    double at_ms = 0;
  };
  Account AccountOf(const std::string& role) const;
  // Lines of the steps file, and why they are not all steps in order, each once and whole.
  std::vector<std::string> steps() const;
  absl::Status CheckSteps() const;
  double step_seconds() const;  // From commit to commit, in the mean; 0 with fewer than two.
  std::vector<double> latencies_ms() const;
  double most_expired() const;                // Leases that expired in one start of the learner.
  uint64_t starts() const { return epoch_; }  // How often the learner started.

 private:
  using Process = testing::Process;
  absl::StatusOr<std::unique_ptr<Process>> Spawn(const std::string& role,
                                                 const std::vector<std::string>& more) const;
  absl::Status StartLearner();
  absl::Status StartHost(int first, int count, std::vector<std::string> more = {});
  void KillWhatIsDue();
  absl::StatusOr<bool> LearnerIsDone();
  absl::Status End(const std::string& role, Process& process);

  const Load& load_;
  const std::vector<std::string> argv_;
  uint64_t epoch_ = 0;
  std::string listen_ = "127.0.0.1:0";  // Where rank 0 listens: the same port in every start.
  std::vector<std::string> reward_endpoints_;
  std::vector<std::unique_ptr<Process>> rewards_, members_, hosts_;
  std::unique_ptr<Process> leader_;
  std::unique_ptr<Process> doomed_;  // Null: killed, or none was wanted.
  bool rank_killed_ = false;
  std::multimap<std::string, std::string> ends_;  // "END ..." lines by role.
};

}  // namespace oxbow::bench
