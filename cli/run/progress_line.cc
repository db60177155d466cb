#include "cli/run/progress_line.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "metrics/step_metrics.h"

namespace oxbow::cli {
namespace {

constexpr size_t kTroubleShown = 160;  // Bytes of a reason on the progress line.

// One line, cut between characters.
std::string FirstPart(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() <= kTroubleShown) return text;
  size_t end = kTroubleShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
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
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.waiting_for().empty()) continue;
    return absl::StrCat("waiting for rewards: ", worker.waiting_for());
  }
  const v1::Failure& failure = status.last_failure();
  if (failure.count() == 0 || failure.seconds_since_last() > status.seconds_since_step()) return "";
  const bool vowel = failure.what() == "image" || failure.what() == "evaluation";
  return absl::StrCat(failure.count(), failure.count() == 1 ? " failure" : " failures",
                      " since the last step, the last of ", vowel ? "an " : "a ", failure.what(),
                      ": ", failure.reason());
}

std::string ProgressLine(const v1::StatusResponse& status, std::optional<double> steps_per_second,
                         uint64_t images_per_step) {
  std::string line = absl::StrCat("step ", status.learner_step(), "/", status.steps_total());
  if (const auto reward = Metric(status, metric::kTrainRewardMean)) {
    absl::StrAppend(&line, absl::StrFormat("  reward %.3f", *reward));
  }
  if (const auto reward = Metric(status, metric::kEvalRewardMean)) {
    absl::StrAppend(&line, absl::StrFormat("  held-out %.3f", *reward));
  }
  if (const auto clip = Metric(status, metric::kTrainClipFracTotal)) {
    absl::StrAppend(&line, absl::StrFormat("  clip %.1f %%", 100 * *clip));
  }
  if (const auto stale = Metric(status, metric::kBufferStalenessMean)) {
    absl::StrAppend(&line, absl::StrFormat("  staleness %.1f", *stale));
  }
  if (Metric(status, metric::kTrainSamplesTrained) == 0.) {
    absl::StrAppend(&line, "  the last step trained no sample");
  }
  std::string trouble = TroubleOf(status);
  if (!trouble.empty()) trouble = absl::StrCat("  ", FirstPart(trouble));
  if (!steps_per_second || *steps_per_second <= 0) {
    return absl::StrCat(line, "  ", status.phase(), trouble);
  }
  absl::StrAppend(&line, absl::StrFormat("  %.0f images/s", *steps_per_second * images_per_step));
  const uint64_t left =
      status.steps_total() - std::min(status.steps_total(), status.learner_step());
  absl::StrAppend(&line, "  ETA ", ClockText(left / *steps_per_second), trouble);
  return line;
}

std::string Bottleneck(const v1::StatusResponse& status) {
  struct Words {
    std::string limit;  // The part that would have to be faster.
    std::string phase;  // What the learner is doing meanwhile.
  };
  static const auto& words =
      *new std::map<std::string, Words>{{"wait", {"rollouts", "waiting for rollouts"}},
                                        {"update", {"learner update", "updating the policy"}},
                                        {"eval", {"evaluation", "evaluating"}},
                                        {"publish", {"publishing", "publishing weights"}},
                                        {"offer", {"replay buffer", "writing to the buffer"}},
                                        {"plan", {"planning", "planning, with the replay buffer"}},
                                        {"checkpoint", {"checkpoints", "writing checkpoints"}}};
  const v1::NamedValue* most = nullptr;
  for (const v1::NamedValue& share : status.time_share()) {
    if (most == nullptr || share.value() > most->value()) most = &share;
  }
  if (most == nullptr) return "";
  const auto found = words.find(most->name());
  const Words word = found == words.end() ? Words{most->name(), most->name()} : found->second;
  return absl::StrFormat("%s: %s %.0f %%", word.limit, word.phase, 100 * most->value());
}

std::string ClockText(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 3.6e6)));
  if (total >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", total / 3600, total / 60 % 60, total % 60);
  }
  return absl::StrFormat("%d:%02d", total / 60, total % 60);
}

}  // namespace oxbow::cli
