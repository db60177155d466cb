#include "cli/progress_line.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace oxbow::cli {

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

std::string ProgressLine(const v1::StatusResponse& status, std::optional<double> steps_per_second,
                         uint64_t images_per_step) {
  std::string line = absl::StrCat("step ", status.learner_step(), "/", status.steps_total());
  if (const auto reward = Metric(status, "train/reward_mean")) {
    absl::StrAppend(&line, absl::StrFormat("  reward %.3f", *reward));
  }
  if (const auto reward = Metric(status, "eval/reward_mean")) {
    absl::StrAppend(&line, absl::StrFormat("  held-out %.3f", *reward));
  }
  if (const auto clip = Metric(status, "train/clip_frac_total")) {
    absl::StrAppend(&line, absl::StrFormat("  clip %.1f %%", 100 * *clip));
  }
  if (const auto stale = Metric(status, "buffer/staleness_mean")) {
    absl::StrAppend(&line, absl::StrFormat("  staleness %.1f", *stale));
  }
  if (!steps_per_second || *steps_per_second <= 0) return absl::StrCat(line, "  ", status.phase());
  absl::StrAppend(&line, absl::StrFormat("  %.0f images/s", *steps_per_second * images_per_step));
  const uint64_t left =
      status.steps_total() - std::min(status.steps_total(), status.learner_step());
  absl::StrAppend(&line, "  ETA ", ClockText(left / *steps_per_second));
  return line;
}

std::string Bottleneck(const v1::StatusResponse& status) {
  static const auto& words = *new std::map<std::string, std::string>{
      {"wait", "waiting for rollouts"},  {"rollout", "waiting for rollouts"},
      {"update", "updating the policy"}, {"eval", "evaluating"},
      {"publish", "publishing weights"}, {"checkpoint", "writing checkpoints"}};
  const v1::NamedValue* most = nullptr;
  for (const v1::NamedValue& share : status.time_share()) {
    if (most == nullptr || share.value() > most->value()) most = &share;
  }
  if (most == nullptr) return "";
  const auto word = words.find(most->name());
  return absl::StrFormat("%s %.0f %%", word == words.end() ? most->name() : word->second,
                         100 * most->value());
}

std::string ClockText(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 3.6e6)));
  if (total >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", total / 3600, total / 60 % 60, total % 60);
  }
  return absl::StrFormat("%d:%02d", total / 60, total % 60);
}

}  // namespace oxbow::cli
