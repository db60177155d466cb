// SPDX-License-Identifier: Apache-2.0
// When the learner's loop evaluates, what becomes of the numbers, and the lines of steps in the
// log: the line of a step whose evaluation goes on beside training waits for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/learner/evaluation/held_out_pictures.h"
#include "services/learner/loop/run_disk.h"

namespace oxbow::learner {

// Owned by the loop's thread.
class EvaluationSchedule {
 public:
  using Numbers = std::map<std::string, double>;

  struct Options {
    std::filesystem::path directory;  // The run's.
    uint32_t every = 0;               // Steps; 0: never.
    uint64_t steps = 0;               // The run's; the last one is evaluated.
    // Training goes on while workers draw an evaluation, for one step at most. Where nothing but
    // its numbers depends on it.
    bool beside = false;
    std::vector<std::string> awaiting;  // Settings that wait for the number of an evaluation.
    // Evaluations that an earlier start owes: the weights after these many steps.
    std::set<uint64_t> owed;
  };

  // `parts` and `disk` outlive it.
  EvaluationSchedule(Options options, const LoopParts& parts, RunDisk& disk);

  // Evaluates what an earlier start owes, before anything else, since there is no better moment:
  // one of them may have weights of its own, and stop rules and the best checkpoint may depend on
  // the other. Their numbers join the lines of their steps. Whether there were any.
  absl::StatusOr<bool> DrawOwed();

  // Evaluates the weights after so many steps, if that is due, into `numbers`. A failure is a
  // number. An error ends the run.
  absl::Status Evaluate(uint64_t committed, Numbers& numbers);
  // The same at the end of a step: goes on beside training where `may_go_on`. A run that drains
  // owes it.
  absl::Status AfterStep(uint64_t committed, bool may_go_on, Numbers& numbers);

  // Writes the line of a step: now, or when the evaluation beside has ended.
  absl::Status Log(uint64_t committed, double wall_seconds, const Numbers& numbers);
  // Ends the evaluation beside, if there is one, and writes the line that waits for it, before any
  // later one.
  absl::Status Finish();
  bool beside() const { return waiting_.has_value(); }

  // Numbers of the evaluation of these weights; `eval/failed` alone if it failed; none without one.
  Numbers NumbersAt(uint64_t committed) const {
    return evaluated_ == committed ? evaluation_ : Numbers();
  }
  // Numbers that were logged, and that no gauge and no status has yet; once.
  Numbers TakeUntold() { return std::exchange(untold_, {}); }
  // Those that a stop cut off.
  const std::set<uint64_t>& owed() const { return owed_; }

 private:
  bool Wanted(uint64_t committed) const;
  bool Begin(uint64_t committed, std::optional<uint64_t> owed, Numbers& numbers);
  absl::Status Take(uint64_t committed, Numbers& numbers);
  void Failed(uint64_t committed, const absl::Status& why, Numbers& numbers);
  void Owe(uint64_t committed);

  // The line of a step whose evaluation is still under way.
  struct WaitingLine {
    uint64_t committed = 0;
    double wall_seconds = 0;
    Numbers numbers;
  };

  const Options options_;
  const LoopParts& parts_;
  RunDisk& disk_;
  BasePictures base_;
  std::optional<uint64_t> evaluated_;  // Committed steps at the last evaluation.
  Numbers evaluation_;                 // Its numbers.
  std::set<uint64_t> owed_;
  std::optional<WaitingLine> waiting_;
  Numbers untold_;
  bool logged_ = false;  // Whether this start has logged a line.
};

}  // namespace oxbow::learner
