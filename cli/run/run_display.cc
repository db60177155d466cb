// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/reward/synthetic_task.h"
#include "io/evaluation_file.h"
#include "metrics/step_metrics.h"

namespace oxbow::cli {
namespace {

constexpr size_t kColumnsUnknown = 80;
constexpr size_t kOtherRewardsMax = 3;  // In the line of an evaluation.
constexpr char kEraseLine[] = "\r\033[K";

}  // namespace

std::optional<size_t> TerminalColumns(int descriptor) {
  const char* const term = std::getenv("TERM");
  if (isatty(descriptor) != 1 || term == nullptr || std::string_view(term) == "dumb" ||
      std::getenv("NO_COLOR") != nullptr) {
    return std::nullopt;
  }
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kColumnsUnknown;
  return size.ws_col;
}

std::string EvaluationLine(const std::map<std::string, double>& line,
                           std::optional<size_t> columns) {
  const auto reward = line.find(metric::kEvalRewardMean);
  if (reward == line.end()) return "";
  std::string text =
      absl::StrFormat("step %-6.0f held-out %.3f", line.at(metric::kStep), reward->second);
  std::string time;
  if (const auto wall = line.find(metric::kTimeWallS); wall != line.end()) {
    time = absl::StrCat("  ", ClockText(wall->second));
  }
  std::vector<std::string> parts;
  if (const auto unscored = line.find(metric::kEvalSamplesUnscored);
      unscored != line.end() && unscored->second > 0) {
    parts.push_back(absl::StrFormat("  %.0f without a score", unscored->second));
  }
  size_t rewards = 0;
  for (const auto& [name, value] : line) {
    const auto one = metric::kEvalRewardNameMean.ValueIn(name);
    // A single term is the reward itself.
    if (!one || reward::SaysLayout(*one) || value == reward->second) continue;
    if (++rewards > kOtherRewardsMax) break;
    parts.push_back(absl::StrCat("  ", std::string(*one), absl::StrFormat(" %.3f", value)));
  }
  if (const auto speckle = line.find(metric::kEvalSpeckleMean); speckle != line.end()) {
    parts.push_back(absl::StrFormat("  speckle %.3g", speckle->second));
  }
  for (const std::string& part : parts) {
    if (columns && text.size() + part.size() + time.size() > *columns) break;
    text += part;
  }
  return text + time;
}

// Whole on any terminal: a person has to read it.
std::string RunDisplay::FailureLine(const std::map<std::string, double>& line) const {
  if (!line.contains(metric::kEvalFailed)) return "";
  const double step = line.at(metric::kStep);
  const auto why = io::EvaluationFailureAt(options_.run_dir, static_cast<int64_t>(step));
  return absl::StrFormat("step %-6.0f held-out failed%s", step,
                         why ? absl::StrCat(": ", io::FailureText(*why)) : "");
}

void RunDisplay::Erase() {
  if (std::exchange(line_in_place_, false)) out_ << kEraseLine;
}

void RunDisplay::ShowEvaluations() {
  metrics_.Take([this](const std::map<std::string, double>& line) {
    const double step = line.at(metric::kStep);
    // Evaluations of the starts before are in the report.
    if (options_.resumed && (!first_ || step <= static_cast<double>(*first_))) return;
    committed_ = std::max(committed_, static_cast<uint64_t>(step));
    std::string text = FailureLine(line);
    if (text.empty()) text = EvaluationLine(line, options_.columns());
    if (text.empty()) return;
    Erase();
    out_ << text << std::endl;
  });
}

void RunDisplay::ShowNotices(const v1::StatusResponse& status) {
  for (const std::string& notice : status.notices()) {
    if (!noticed_.insert(notice).second) continue;
    Erase();
    out_ << "warning: " << notice << std::endl;
  }
}

void RunDisplay::Show(absl::Duration now, const v1::StatusResponse& status) {
  committed_ = status.learner_step();
  steps_total_ = status.steps_total();
  trouble_ = TroubleOf(status);
  rate_.Observe(now, committed_);
  if (!first_) {
    first_ = committed_;
    if (options_.resumed) {
      Erase();
      out_ << "resumed at step " << committed_ << " of " << steps_total_ << std::endl;
    }
  }
  ShowEvaluations();
  ShowNotices(status);
  if (const std::string legend = Legend(status); !legend.empty() && !explained_) {
    explained_ = true;
    Erase();
    out_ << legend << std::endl;
  }
  const bool due = !std::exchange(answered_, now) || now >= next_log_;
  const auto columns = options_.columns();
  // The last column stays free: a full line would wrap on some terminals.
  const size_t width = columns ? std::max<size_t>(*columns, 2) - 1 : 0;
  const auto line = [&](size_t room) {
    return columns ? ProgressBar(status, rate_.per_second(), options_.images_per_step, room)
                   : ProgressLine(status, rate_.per_second(), options_.images_per_step);
  };
  const std::string text = line(width);
  std::string since = standing_.Since(now, text);
  // A rate takes the phase's place until a step lasts.
  if (!since.empty() && !absl::StrContains(text, status.phase()) && !TroubleSaysPhase(status)) {
    since = absl::StrCat("  ", status.phase(), since);
  }
  if (columns) {
    ShowInPlace(since.empty() || since.size() >= width ? text : line(width - since.size()) + since);
  } else if (due) {
    next_log_ = now + options_.log_every;
    out_ << text << since << std::endl;
  }
}

void RunDisplay::ShowSilence(absl::Duration now) {
  if (answered_ && now - *answered_ < StandingText::kNoticed) return;
  std::string text =
      answered_ ? "waiting for the learner" : "starting: models and rewards are loaded";
  text += standing_.Since(now, text);
  if (const auto columns = options_.columns()) {
    ShowInPlace(text.substr(0, std::max<size_t>(*columns, 2) - 1));
  } else if (next_log_ == absl::ZeroDuration()) {
    next_log_ = now + options_.log_every;  // It may answer before that.
  } else if (now >= next_log_) {
    next_log_ = now + options_.log_every;
    out_ << text << std::endl;
  }
}

void RunDisplay::ShowInPlace(const std::string& text) {
  out_ << kEraseLine << text << std::flush;
  line_in_place_ = true;
}

void RunDisplay::End() {
  ShowEvaluations();
  Erase();
  out_ << std::flush;
}

}  // namespace oxbow::cli
