// SPDX-License-Identifier: Apache-2.0
// A run whose learner is started by a launcher: replay buffer, reward server and worker as `oxbow
// train` would start them, the learner by the test's command line.
//
//   LaunchedRun run({"run.steps=6"});
//   run.Work(run.Launch({.launcher = {"/usr/bin/torchrun", "--no-python", "--nproc-per-node",
//   "2"}})); EXPECT_THAT(run.WaitExit(), Each(0));
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/process.h"
#include "tests/testing/run_files.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {

inline constexpr absl::Duration kLaunchDeadline = absl::Seconds(150);

class LaunchedRun {
 public:
  // Starts the services that the learner needs. `overrides` are applied to the digits recipe.
  explicit LaunchedRun(std::vector<std::string> overrides);
  ~LaunchedRun();

  // Starts a launcher: its own arguments, then the learner's command line, which is the same after
  // every restart.
  struct Command {
    std::vector<std::string> launcher;
    std::vector<std::string> environment;
    std::vector<std::string> after;  // Further arguments of the learner.
    bool any_port = false;  // For a second machine that is really this one: workers know the first.
  };
  Process& Launch(Command command);

  // Waits until `rank_zero` is ready, then starts a worker.
  void Work(Process& rank_zero);

  void StopWork() { worker_.reset(); }

  // Sends a signal to the process of this rank, for any parent. False if there is none.
  bool KillRank(int rank, int signal = SIGKILL);

  // The replay buffer goes away with SIGKILL, and comes back at the same address.
  void KillBuffer();
  void StartBuffer();
  const std::string& buffer() const { return buffer_; }

  // The process that was launched last.
  Process& launched() { return *launched_.back(); }

  bool WaitForStep(int64_t step);
  // Exit codes of all processes launched since the last call, in that order.
  std::vector<int> WaitExit();
  const RunFiles& files() const { return files_; }

 private:
  std::unique_ptr<Process> Service(std::vector<std::string> argv, std::string& endpoint);
  std::vector<pid_t> LearnerProcesses() const;
  void Clear();

  ScopedDirectory scratch_;
  const RunFiles files_{scratch_.path() / "run"};
  std::unique_ptr<Process> buffer_process_;
  std::unique_ptr<Process> reward_process_;
  std::string buffer_;
  std::string reward_;
  std::string listen_;
  std::vector<std::unique_ptr<Process>> launched_;
  std::unique_ptr<Process> worker_;
};

// A port of this machine on which nothing listens.
int FreePort();

}  // namespace oxbow::testing
