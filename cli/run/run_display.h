// SPDX-License-Identifier: Apache-2.0
// The display of a run by `oxbow train` while it goes on: a line that is rewritten in place where
// there is a terminal, and lines that stay: one for each evaluation and each notice, and
// where a resumed run began, and what the words of the first one mean. Elsewhere a line every ten
// seconds says where the run is, and for how long nothing has changed.
//
//   [=====>      ] step 37/100  reward 0.910  held-out 0.943  412 images/s  ETA 0:12
//   [=====>      ] step 37/100  reward 0.910  held-out 0.943  ETA 0:12  evaluating  0:26
//   step 30     held-out 0.943  digits_strict 0.836  speckle 0.0138  0:12
//   step 40     held-out failed: no face; no number for run.stop_if
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "cli/run/progress_line.h"
#include "io/metrics_file.h"
#include "oxbow/v1/coordinator.pb.h"

namespace oxbow::cli {

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
