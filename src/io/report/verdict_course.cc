// SPDX-License-Identifier: Apache-2.0
#include "io/report/verdict_course.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/statistics.h"
#include "io/report/svg_chart.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {

namespace {

constexpr double kRounding = 1e-6;  // A share of a number, in its standard deviation.

std::string MeanOf(const std::string& reward) {
  return reward.empty() ? metric::kTrainRewardMean.name : metric::kTrainRewardNameMean.Of(reward);
}

std::string SpreadOf(const std::string& reward) {
  return reward.empty() ? metric::kTrainRewardStd.name : metric::kTrainRewardNameStd.Of(reward);
}

}  // namespace

std::vector<double> Between(const std::vector<Point>& points, double after, double end) {
  std::vector<double> values;
  for (const Point& point : points) {
    if (point.x > after && point.x <= end && std::isfinite(point.y)) values.push_back(point.y);
  }
  return values;
}

std::vector<double> Late(const History& history, const std::string& name, double share) {
  const double end = history.last_step();
  return Between(history.Column(name), end * (1 - share) - 1e-9, end);
}

std::vector<double> Early(const History& history, const std::string& name, double share) {
  return Between(history.Column(name), 0, std::max(1.0, history.last_step() * share));
}

Course::Course(const std::vector<Point>& points) {
  for (const Point& point : points) {
    if (std::isfinite(point.y)) all.push_back({point.x, point.y});
  }
  if (all.empty()) return;
  first = best = all.front();
  last = all.back();
  mean = best_mean = first.value;
  for (size_t i = 1; i < all.size(); ++i) {
    const size_t begin = i < 3 ? 1 : i - 2;
    double sum = 0;
    for (size_t j = begin; j <= i; ++j) sum += all[j].value;
    mean = sum / static_cast<double>(i + 1 - begin);
    best_mean = std::max(best_mean, mean);
    if (all[i].value > best.value) best = all[i];
  }
}

Course RewardCourse(const History& history) {
  const bool held_out = history.First(metric::kEvalRewardMean).has_value();
  return Course(history.Column(held_out ? metric::kEvalRewardMean : metric::kTrainRewardMean));
}

bool TooEarly(const History& history) {
  return history.last_step() < kEarlySteps || RewardCourse(history).all.size() < kEarlyEvaluations;
}

std::string TooEarlyText(const History& history) {
  std::vector<std::string> few;
  const size_t evaluations = RewardCourse(history).all.size();
  if (history.last_step() < kEarlySteps) {
    few.push_back(absl::StrCat(StepText(history.last_step()), " of ", kEarlySteps, " steps"));
  }
  if (evaluations < kEarlyEvaluations) {
    few.push_back(absl::StrCat(evaluations, " of ", kEarlyEvaluations, " evaluations"));
  }
  return absl::StrCat("too early to say (", absl::StrJoin(few, ", "), ")");
}

double NoiseOf(const History& history, const RunFacts& facts, double scale,
               const std::string& reward) {
  const std::vector<double> spread = Early(history, SpreadOf(reward), 0.2);
  const double one = spread.empty() ? 0.3 * std::abs(scale) : Mean(spread);
  return std::max(one, 1e-3 * std::abs(scale)) /
         std::sqrt(static_cast<double>(std::max(1U, facts.eval_images)));
}

std::optional<double> SameNumber(const History& history, const std::string& reward) {
  const std::vector<double> means = Late(history, MeanOf(reward), 0.3);
  const std::vector<double> spreads = Late(history, SpreadOf(reward), 0.3);
  if (means.empty() || spreads.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(means.begin(), means.end());
  const double rounding = kRounding * std::max(std::abs(*least), std::abs(*most));
  const bool same =
      *most - *least <= rounding && *std::max_element(spreads.begin(), spreads.end()) <= rounding;
  return same ? std::optional(means.back()) : std::nullopt;
}

std::string Change(const Course& course) {
  const std::string change =
      absl::StrCat(Number(course.first.value), " -> ", Number(course.last.value));
  if (course.gain() * (course.last.value - course.first.value) >= 0) return change;
  return absl::StrCat(change, " (", Number(course.mean), " in the mean of three)");
}

std::string StepText(double step) { return absl::StrFormat("%.0f", step); }

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

}  // namespace oxbow::io
