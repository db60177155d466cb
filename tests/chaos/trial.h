// SPDX-License-Identifier: Apache-2.0
// One trial: a run, the faults of its plan, and the checker's judgement.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/chaos/evidence.h"
#include "tests/chaos/fault_plan.h"
#include "tests/chaos/run_under_test.h"

namespace oxbow::chaos {

struct TrialOptions {
  std::filesystem::path binaries;
  std::filesystem::path source;   // The repository; for its model and prompts.
  std::string preloaded;          // A library to preload (preloaded_number.h); empty: none.
  std::string disk;               // Another (tests/testing/faulty_disk.h).
  std::filesystem::path scratch;  // Each trial gets a subdirectory.
  absl::Duration deadline = absl::Seconds(180);
  bool keep = false;  // Keep also the directories of runs without violations.
  // Memory that a process has once it has loaded LibTorch: measured on this one, which has too.
  uint64_t libtorch_bytes = AnonymousBytesOf(getpid());
};

// The outcome of a fault.
struct FaultReport {
  Fault fault;
  enum class Fate { kDone, kTooLate, kNotPossible } fate = Fate::kTooLate;
  std::string why;                             // Reason for kNotPossible.
  std::optional<absl::Duration> to_next_step;  // From its begin; absent: no further step.
};

struct TrialReport {
  TrialPlan plan;
  std::vector<FaultReport> faults;
  std::vector<std::string> violations;  // "promise 3: ..."
  absl::Duration took;
  std::filesystem::path directory;  // Kept if there are violations, or if requested.

  bool OverlappingDone() const;  // Whether two faults were there at once.
};

class Trials {
 public:
  explicit Trials(TrialOptions options) : options_(std::move(options)) {}

  TrialReport Run(const TrialPlan& plan);

 private:
  // Evidence of a run like `plan` without faults; made once.
  const Evidence& Undisturbed(const TrialPlan& plan);

  const TrialOptions options_;
  std::map<std::string, Evidence> undisturbed_;
};

// One line for each trial.
std::string LineOf(const TrialReport& report);

// A Markdown table with a line for each kind of fault.
std::string TableOf(const std::vector<TrialReport>& reports);

}  // namespace oxbow::chaos
