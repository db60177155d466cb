// SPDX-License-Identifier: Apache-2.0
#include "cli/run/progress_line.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/first_part.h"
#include "cli/terminal.h"
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

bool TroubleSaysPhase(const v1::StatusResponse& status) {
  return status.phase() == learner::kAwaitsRewards &&
         (AwaitsRewards(status) ||
          std::any_of(status.workers().begin(), status.workers().end(),
                      [](const auto& worker) { return !worker.waiting_for().empty(); }));
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

}  // namespace oxbow::cli
