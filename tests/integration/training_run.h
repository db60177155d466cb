// SPDX-License-Identifier: Apache-2.0
// A complete run under test: `oxbow train` with its real child processes, in its own directory.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/testing/process.h"
#include "tests/testing/run_files.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {

inline constexpr absl::Duration kRunDeadline = absl::Seconds(150);

// Ten steps with every form of reuse at once, on 64 prompts of mixed difficulty that come round
// every fourth step.
std::vector<std::string> ReuseOverrides();

class TrainingRun {
 public:
  // Starts the digits recipe with `overrides` ("run.steps=4"). Small by default: few evaluation
  // images. With `recipe`, the run file holds only that recipe, or is the file in configs/ that has
  // this name.
  explicit TrainingRun(std::vector<std::string> overrides, std::vector<std::string> flags = {},
                       const std::string& recipe = "");

  // Starts again in the same directory, with --resume.
  void Resume(std::vector<std::string> overrides);

  // Waits until metrics.jsonl has a row of `step` or later. False after the deadline, or if the run
  // ended first.
  bool WaitForStep(int64_t step, absl::Duration timeout = kRunDeadline);

  // Sends a signal to one child by its process name; false if there is none. Of several, to one
  // with `argument` in a word of its command line.
  bool KillChild(const std::string& name, int signal, const std::string& argument = "");

  Process& process() { return *process_; }
  absl::StatusOr<int> WaitExit(absl::Duration timeout = kRunDeadline) {
    return process_->WaitExit(timeout);
  }

  std::filesystem::path directory() const { return scratch_.path() / "run"; }

  RunFiles files() const { return RunFiles(directory()); }
  std::vector<nlohmann::json> metrics() const { return files().metrics(); }
  std::vector<double> Series(const std::string& key) const { return files().Series(key); }
  std::string FinalWeights() const { return files().FinalWeights(); }

  // The run's settings as overrides of the defaults; its recipe file is `recipe=digits-op-grpo`.
  std::vector<std::string> AllOverrides(const std::vector<std::string>& overrides) const;

 private:
  std::vector<std::string> SmallRun() const;
  void Start(std::vector<std::string> overrides, std::vector<std::string> flags);

  ScopedDirectory scratch_;
  std::filesystem::path run_file_;
  std::unique_ptr<Process> process_;
};

// pids of the direct children of `parent` whose process name is `name`.
std::vector<pid_t> ChildrenNamed(pid_t parent, const std::string& name);

}  // namespace oxbow::testing
