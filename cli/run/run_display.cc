// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_display.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/first_part.h"
#include "cli/terminal.h"
#include "core/reward/synthetic_task.h"
#include "io/evaluation_file.h"
#include "metrics/phase_words.h"
#include "metrics/step_metrics.h"
#include "services/learner/record/run_progress.h"

namespace oxbow::cli {

namespace {

constexpr size_t kTroubleShown = 160;  // Bytes of a reason on the progress line.

// The learner itself does, before its first step.
bool AwaitsRewards(const v1::StatusResponse& status) {
  return status.phase() == learner::kAwaitsRewards &&
         status.last_failure().what() == learner::kRewardCheck;
}

constexpr size_t kOtherRewardsMax = 3;  // In the line of an evaluation.
constexpr char kEraseLine[] = "\r\033[K";

// Whether that says what the phase would: a worker or the learner waits for rewards.
bool TroubleSaysPhase(const v1::StatusResponse& status) {
  return status.phase() == learner::kAwaitsRewards &&
         (AwaitsRewards(status) ||
          std::any_of(status.workers().begin(), status.workers().end(),
                      [](const auto& worker) { return !worker.waiting_for().empty(); }));
}

}  // namespace

void StepRate::Observe(absl::Duration now, uint64_t step) {
  if (!seen_.empty() && step < seen_.back().second) seen_.clear();  // The learner went back.
  if (seen_.empty() || step != seen_.back().second) seen_.emplace_back(now, step);
  while (seen_.size() > 2 && seen_.back().first - seen_.front().first > window_) seen_.pop_front();
}

std::optional<double> StepRate::per_second() const {
  if (seen_.size() < 2 || seen_.back().first <= seen_.front().first) return std::nullopt;
  return static_cast<double>(seen_.back().second - seen_.front().second) /
         absl::ToDoubleSeconds(seen_.back().first - seen_.front().first);
}

std::optional<double> Metric(const v1::StatusResponse& status, const std::string& name) {
  for (const v1::NamedValue& metric : status.metrics()) {
    if (metric.name() == name && std::isfinite(metric.value())) return metric.value();
  }
  return std::nullopt;
}

std::string TroubleOf(const v1::StatusResponse& status) {
  const v1::WorkerStatus* waits = nullptr;
  size_t others = 0;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.waiting_for().empty()) continue;
    others += waits != nullptr ? 1 : 0;
    if (waits == nullptr) waits = &worker;
  }
  if (waits != nullptr) {
    const std::string verb = others == 0 ? " waits" : absl::StrCat(" and ", others, " more wait");
    return absl::StrCat(waits->worker_id(), verb, " for rewards: ", waits->waiting_for());
  }
  const v1::Failure& failure = status.last_failure();
  if (failure.count() == 0 || failure.seconds_since_last() > status.seconds_since_step()) return "";
  if (AwaitsRewards(status)) return absl::StrCat("waits for rewards: ", failure.reason());
  const bool vowel = failure.what() == "image" || failure.what() == "evaluation";
  return absl::StrCat(failure.count(), failure.count() == 1 ? " failure" : " failures",
                      " since the last step, the last of ", vowel ? "an " : "a ", failure.what(),
                      ": ", failure.reason());
}

namespace {

// Order in which parts of the line give way to a narrow terminal: the last first.
enum Keep { kAlways, kTrouble, kEta, kHeldOut, kReward, kPhase, kImages, kBar, kClip, kAge };

struct Part {
  Keep keep = kAlways;
  std::string text;
};

std::vector<Part> PartsOf(const v1::StatusResponse& status, std::optional<double> steps_per_second,
                          uint64_t images_per_step) {
  std::vector<Part> parts;
  const auto put = [&parts](Keep keep, std::string text) {
    Part& part = parts.emplace_back();
    part.keep = keep;
    part.text = std::move(text);
  };
  put(kAlways, absl::StrCat("step ", status.learner_step(), "/", status.steps_total()));
  const auto add = [&](Keep keep, const std::string& name, auto text) {
    if (const auto value = Metric(status, name)) put(keep, text(*value));
  };
  add(kReward, metric::kTrainRewardMean,
      [](double x) { return absl::StrFormat("reward %.3f", x); });
  add(kHeldOut, metric::kEvalRewardMean,
      [](double x) { return absl::StrFormat("held-out %.3f", x); });
  if (Metric(status, metric::kEvalFailed)) put(kHeldOut, "held-out failed");
  add(kClip, metric::kTrainClipFracTotal,
      [](double x) { return absl::StrFormat("clip %.1f %%", 100 * x); });
  add(kAge, metric::kBufferStalenessMean,
      [](double x) { return absl::StrFormat("head age %.1f", x); });
  if (Metric(status, metric::kTrainSamplesTrained) == 0.) {
    const bool equal = Metric(status, metric::kTrainRewardZeroStdRatio) == 1.;
    put(kTrouble, equal ? "the last step trained no sample: the rewards of each group are equal"
                        : "the last step trained no sample");
  }
  if (!steps_per_second || *steps_per_second <= 0) {
    if (!TroubleSaysPhase(status)) put(kPhase, status.phase());
  } else {
    const double images = *steps_per_second * images_per_step;
    put(kImages, images < 10 ? absl::StrFormat("%.2g images/s", images)
                             : absl::StrFormat("%.0f images/s", images));
    const uint64_t left =
        status.steps_total() - std::min(status.steps_total(), status.learner_step());
    put(kEta, absl::StrCat("ETA ", ClockText(left / *steps_per_second)));
  }
  if (const std::string trouble = TroubleOf(status); !trouble.empty()) {
    put(kTrouble, FirstPart(trouble, kTroubleShown));
  }
  return parts;
}

std::string Join(const std::vector<Part>& parts) {
  return absl::StrJoin(parts, "  ",
                       [](std::string* out, const Part& part) { absl::StrAppend(out, part.text); });
}

std::string Bar(uint64_t done, uint64_t total, size_t width) {
  const size_t full = total == 0 ? 0 : static_cast<size_t>(std::min(done, total) * width / total);
  return absl::StrCat("[", std::string(full, '='), std::string(width - full, ' '), "]");
}

}  // namespace

std::vector<std::string> OtherVersions(const v1::StatusResponse& status) {
  std::vector<std::string> others;
  const auto look = [&](const std::string& member, const std::string& version) {
    if (version.empty() || version == status.version()) return;
    others.push_back(absl::StrCat(member, " is oxbow ", version));
  };
  for (const v1::RankStatus& rank : status.ranks()) {
    look(absl::StrCat("rank ", rank.rank()), rank.version());
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    look(worker.worker_id(), worker.version());
  }
  return others;
}

std::string ProgressLine(const v1::StatusResponse& status, std::optional<double> steps_per_second,
                         uint64_t images_per_step) {
  return Join(PartsOf(status, steps_per_second, images_per_step));
}

std::string Legend(const v1::StatusResponse& status) {
  std::vector<std::string> parts;
  if (Metric(status, metric::kTrainClipFracTotal)) {
    parts.push_back("clip: share of probability ratios that the clip cuts");
  }
  if (Metric(status, metric::kBufferStalenessMean)) {
    parts.push_back("head age: learner steps since the replayed heads were drawn");
  }
  return absl::StrJoin(parts, "\n");
}

std::string ProgressBar(const v1::StatusResponse& status, std::optional<double> steps_per_second,
                        uint64_t images_per_step, size_t width) {
  std::vector<Part> parts = PartsOf(status, steps_per_second, images_per_step);
  parts.insert(parts.begin(),
               {kBar, Bar(status.learner_step(), status.steps_total(), width < 110 ? 10 : 24)});
  while (Join(parts).size() > width) {
    const auto least = std::max_element(
        parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.keep < b.keep; });
    if (least->keep <= kTrouble) break;
    parts.erase(least);
  }
  return FirstPart(Join(parts), width);
}

std::string Bottleneck(const v1::StatusResponse& status) {
  const v1::NamedValue* most = nullptr;
  for (const v1::NamedValue& share : status.time_share()) {
    if (most == nullptr || share.value() > most->value()) most = &share;
  }
  if (most == nullptr) return "";
  if (status.workers().empty()) return "no worker is connected";
  if (!TroubleOf(status).empty()) return "";
  const metric::PhaseWords* const words = metric::WordsOf(most->name());
  const std::string limit(words == nullptr ? most->name() : std::string(words->limit));
  const std::string doing(words == nullptr ? most->name() : std::string(words->doing));
  return absl::StrFormat("%s: %s %.0f %%", limit, doing, 100 * most->value());
}

std::string StandingText::Since(absl::Duration now, const std::string& text) {
  if (text != text_) {
    text_ = text;
    begin_ = now;
  }
  const absl::Duration since = now - begin_;
  return since < kNoticed ? "" : absl::StrCat("  ", ClockText(absl::ToDoubleSeconds(since)));
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
