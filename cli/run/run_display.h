// SPDX-License-Identifier: Apache-2.0
// The display of a run by `oxbow train` while it goes on: a line that is rewritten in place where
// there is a terminal, and lines that stay: one for each evaluation and each notice, and
// where a resumed run began, and what the words of the first one mean. Elsewhere a line every ten
// seconds says where the run is, and for how long nothing has changed. The parts of the line are
// pure functions of the learner's Status; other commands say them, too.
//
//   [=====>      ] step 37/100  reward 0.910  held-out 0.943  412 images/s  ETA 0:12
//   [=====>      ] step 37/100  reward 0.910  held-out 0.943  ETA 0:12  evaluating  0:26
//   step 30     held-out 0.943  digits_strict 0.836  speckle 0.0138  0:12
//   step 40     held-out failed: no face; no number for run.stop_if
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "io/metrics_file.h"
#include "oxbow/v1/coordinator.pb.h"

namespace oxbow::cli {

// One line about a live run, made from the learner's Status. Pure.
//
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

// Each member of another build than the learner's: "rank 1 is oxbow 0.9.0".
std::vector<std::string> OtherVersions(const v1::StatusResponse& status);

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

class RunDisplay {
 public:
  struct Options {
    std::filesystem::path run_dir;
    uint64_t images_per_step = 0;
    bool resumed = false;
    absl::Duration log_every = absl::Seconds(10);  // Between lines where none is rewritten.
    std::function<std::optional<size_t>()> columns;
  };

  RunDisplay(Options options, std::ostream& out) : options_(std::move(options)), out_(out) {}

  // Shows what the learner says and what it has logged since the last call.
  void Show(absl::Duration now, const v1::StatusResponse& status);
  // The learner has not answered. Says so where that lasts.
  void ShowSilence(absl::Duration now);
  // Shows the evaluations that are left, and erases the line in place.
  void End();

  // Steps that the learner said it has done, or has logged; 0 before the first call.
  uint64_t committed() const { return committed_; }
  uint64_t steps_total() const { return steps_total_; }
  // The learner's trouble as it was last shown (TroubleOf); empty: none.
  const std::string& trouble() const { return trouble_; }

 private:
  void ShowInPlace(const std::string& text);
  void ShowEvaluations();
  // "" if no evaluation of the line's step failed.
  std::string FailureLine(const std::map<std::string, double>& line) const;
  void ShowNotices(const v1::StatusResponse& status);
  void Erase();

  const Options options_;
  std::ostream& out_;
  io::MetricsFollower metrics_{options_.run_dir / io::kMetricsFile};
  StepRate rate_;
  absl::Duration next_log_;
  std::optional<uint64_t> first_;  // The first step that the learner reported.
  uint64_t committed_ = 0;
  uint64_t steps_total_ = 0;
  std::string trouble_;
  std::set<std::string> noticed_;
  bool explained_ = false;                  // Legend was shown.
  std::optional<absl::Duration> answered_;  // When the learner last did.
  StandingText standing_;
  bool line_in_place_ = false;
};

// "step 30     held-out 0.943  digits_strict 0.836  speckle 0.0138  0:12" of a line of
// metrics.jsonl; empty for a line without the numbers of an evaluation. Parts leave, the last first
// but never the time, until the line fits so many columns.
std::string EvaluationLine(const std::map<std::string, double>& line,
                           std::optional<size_t> columns = std::nullopt);

}  // namespace oxbow::cli
