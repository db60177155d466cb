// SPDX-License-Identifier: Apache-2.0
// A run in a few words: what it has done, whether it goes on, and the verdict on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "io/evaluation_file.h"
#include "io/metrics_file.h"
#include "io/report/report.h"
#include "io/report/verdict.h"
#include "run/run_record.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::cli {

struct RunSummary {
  std::string name;
  bool live = false;
  uint64_t step = 0;
  uint64_t steps_total = 0;  // 0: not known.
  std::string reward_name;
  // Held-out rewards and their steps, of evaluations that can be compared.
  std::optional<io::Point> first, last, best;
  std::optional<learner::BestCheckpoint> best_checkpoint;
  size_t evaluations = 0;                                   // Failed ones included.
  size_t evaluations_failed = 0;                            // They gave no number.
  std::optional<io::EvaluationFailure> evaluation_failure;  // The last.
  double samples = 0;                                       // That arrived, over all steps.
  double samples_unscored = 0;                              // Those without a score.
  std::string unscored_reason;                              // Why the last of them had none.
  std::optional<run::EndRecord> ended;  // Nothing: it is live, or nobody recorded it.
  absl::Time changed;                   // When it last logged a step; before the first: its start.
  io::Verdict verdict;

  // "running", or how it ended: run::WordOf; "done" or "stopped" where that is not recorded.
  std::string state() const;
  // "failed", or "end unknown": nobody wrote why it ended before its last step; else "".
  std::string EndsBadly() const;
  // The state, and why in a few words: "failed: disk full".
  std::string StateAndCause() const;
};

// kNotFound if there is no run there, naming the runs beside it; kDataLoss for damaged metrics.
absl::StatusOr<RunSummary> SummaryOf(const std::filesystem::path& run_dir);
// The same for one who comes again: takes what is new since `reading` was asked last.
absl::StatusOr<RunSummary> SummaryOf(const std::filesystem::path& run_dir, io::RunReading& reading);

// kNotFound: "no run there: runs/nope; runs beside it: digits, digits-sparse"; where there is one
// without its config.resolved.yaml it names that.
absl::Status NoRun(const std::filesystem::path& run_dir);

// NoRun unless there is such a directory.
absl::Status FindRun(const std::filesystem::path& run_dir);

// The runs in a directory, those that changed last first; what is no run is left out.
std::vector<RunSummary> RunsIn(const std::filesystem::path& directory);

// "6 of 6 evaluations failed, the last at step 12: no face; no number for run.stop_if"; "" if none.
std::string FailedText(const RunSummary& run);
// "24 % of the samples (612 of 2560) have no score: no face"; "" if all have one.
std::string UnscoredText(const RunSummary& run);

// The account that `oxbow status` gives of a run that has ended.
std::string EndedText(const RunSummary& run, const std::filesystem::path& run_dir);

// A table, one run a line; ages are before `now`.
std::string RunsText(const std::vector<RunSummary>& runs, absl::Time now);

}  // namespace oxbow::cli
