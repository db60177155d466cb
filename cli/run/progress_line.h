// SPDX-License-Identifier: Apache-2.0
// One line about a live run, made from the learner's Status. Pure.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "oxbow/v1/coordinator.pb.h"

namespace oxbow::cli {

// Steps per second over the last few seconds of polls, so that an estimate follows changes.
class StepRate {
 public:
  explicit StepRate(absl::Duration window = absl::Seconds(20)) : window_(window) {}
  void Observe(absl::Duration now, uint64_t step);
  // Nothing until two different steps were observed.
  std::optional<double> per_second() const;

 private:
  const absl::Duration window_;
  std::deque<std::pair<absl::Duration, uint64_t>> seen_;
};

// A metric by its name in metrics.jsonl.
std::optional<double> Metric(const v1::StatusResponse& status, const std::string& name);

// The trouble that keeps the run from going on, in its own words; empty if the last step was
// committed after the last trouble:
//
//   w2 waits for rewards: reward server 127.0.0.1:7070: connection refused
//   3 failures since the last step, the last of a group: reward of sample 2: CUDA out of memory
std::string TroubleOf(const v1::StatusResponse& status);

// Whether that says what the phase would: a worker or the learner waits for rewards.
bool TroubleSaysPhase(const v1::StatusResponse& status);

// "step 37/100  reward 0.91  clip 0.4 %  head age 1.5  412 images/s  ETA 0:12"; unknown parts are
// left out. Ends with the beginning of TroubleOf.
std::string ProgressLine(const v1::StatusResponse& status, std::optional<double> steps_per_second,
                         uint64_t images_per_step);

// Explains the words of that line that are not plain ones: a line each, "clip: ..."; "" where
// it has none of them.
std::string Legend(const v1::StatusResponse& status);

// The same with a bar before it, on `width` columns at most: parts leave, the less important first,
// until the line fits; step and trouble stay and are cut.
std::string ProgressBar(const v1::StatusResponse& status, std::optional<double> steps_per_second,
                        uint64_t images_per_step, size_t width);

// The bottleneck of the run, which is the phase that took most of the wall-clock time over the last
// steps: "rollouts: waiting for rollouts 62 %", "learner update: updating the policy 71 %". A run
// without a worker is limited by that. Empty without time shares, and while something fails, which
// TroubleOf says.
std::string Bottleneck(const v1::StatusResponse& status);

// How long a text has stood unchanged, once a person would notice: "  0:42".
class StandingText {
 public:
  static constexpr absl::Duration kNoticed = absl::Seconds(3);

  // The words to put behind the text that is shown at `now`; empty while it is new.
  std::string Since(absl::Duration now, const std::string& text);

 private:
  std::string text_;
  absl::Duration begin_;
};

}  // namespace oxbow::cli
