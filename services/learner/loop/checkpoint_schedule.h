// SPDX-License-Identifier: Apache-2.0
// When the learner's loop writes checkpoints, and what becomes of those that cannot be written: the
// next steps try again, and nothing that is committed is lost. One is written at a time, while
// training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/patience.h"
#include "services/learner/loop/run_disk.h"

namespace oxbow::learner {

// Owned by the loop's thread.
class CheckpointSchedule {
 public:
  struct Options {
    uint64_t committed = 0;             // Steps of the checkpoint that the run goes on from.
    uint32_t every = 0;                 // Steps; 0: only the last one.
    std::string best_metric;            // Each evaluation that is the best by it has a checkpoint.
    std::optional<double> best_before;  // The best of checkpoints made before.
  };

  // Makes the state to be saved. `keep_all`: the buffer keeps all its checkpoints, since the run
  // may go back to any.
  using MakeState = std::function<absl::StatusOr<RunState>(bool keep_all)>;

  // `parts` and `disk` outlive it.
  CheckpointSchedule(Options options, const LoopParts& parts, RunDisk& disk);

  // Judges the write that was begun last, if it has ended. An error, here and below, ends the run.
  absl::Status Look();
  // Whether this step has a checkpoint: its number says so, or the last one could not be written.
  bool Due(uint64_t committed) const;
  // Whether these numbers of an evaluation are better than those of any checkpoint. The untrained
  // model has none.
  bool IsBest(uint64_t committed, const std::map<std::string, double>& evaluation);

  absl::Status Write(uint64_t committed, const MakeState& state);
  // Returns once a checkpoint of these steps is whole.
  absl::Status WriteLast(uint64_t committed, const MakeState& state);

 private:
  absl::Status Judge(const absl::Status& status);

  const Options options_;
  const LoopParts& parts_;
  RunDisk& disk_;
  uint64_t begun_;                       // Steps of the checkpoint that was begun last.
  bool judged_ = true;                   // It was seen what became of that one.
  Patience patience_;                    // With checkpoints that cannot be written.
  std::optional<absl::Duration> again_;  // When to try again; none: the last one has not failed.
  std::optional<double> best_;           // The best of the checkpoints' evaluations.
  std::optional<double> best_begun_;     // The same without those after the last begun.
  std::optional<double> best_whole_;     // The same of those that are whole.
};

}  // namespace oxbow::learner
