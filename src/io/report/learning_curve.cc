// SPDX-License-Identifier: Apache-2.0
#include "io/report/learning_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/statistics.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

constexpr size_t kTrailing = 3;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double ValueOr(const std::map<std::string, double>& line, const std::string& name,
               double otherwise) {
  const auto found = line.find(name);
  return found == line.end() ? otherwise : found->second;
}

// The mean of the reward that is full only where everything is right: `digits_strict` of its task.
double StrictMean(const std::map<std::string, double>& line) {
  for (const auto& [name, value] : line) {
    const auto reward = metric::kEvalRewardNameMean.ValueIn(name);
    if (reward.has_value() && absl::EndsWith(std::string(*reward), "_strict")) return value;
  }
  return kUnknown;
}

// Mean of the last three finite values.
double FinalMean(const std::vector<double>& values) {
  std::vector<double> kept;
  for (auto it = values.rbegin(); it != values.rend() && kept.size() < kTrailing; ++it) {
    if (std::isfinite(*it)) kept.push_back(*it);
  }
  if (kept.empty()) return kUnknown;
  return Mean(kept);
}

double TrailingMean(const LearningCurve& curve, size_t i, double CurvePoint::*value) {
  OXBOW_CHECK(i < curve.points.size()) << "evaluation " << i << " of " << curve.points.size();
  const size_t first = i + 1 >= kTrailing ? i + 1 - kTrailing : 0;
  double sum = 0;
  for (size_t j = first; j <= i; ++j) sum += curve.points[j].*value;
  return sum / static_cast<double>(i + 1 - first);
}

}  // namespace

LearningCurve CurveOf(const std::vector<std::map<std::string, double>>& lines) {
  LearningCurve curve;
  CurvePoint sums;
  std::vector<double> strict;
  std::vector<double> speckle;
  std::vector<double> minority;
  for (const auto& line : lines) {
    const double step = ValueOr(line, metric::kStep, 0);
    if (step > 0) {
      // Runs of older versions have no count of samples that were made.
      sums.images +=
          ValueOr(line, metric::kRolloutSamples, ValueOr(line, metric::kTrainSamples, 0));
      // NaN stays: a cost that was not logged once is not known.
      sums.nfe3 += ValueOr(line, metric::kRolloutRowsForward, kUnknown) +
                   ValueOr(line, metric::kTrainRowsForward, kUnknown) +
                   3 * ValueOr(line, metric::kTrainRowsBackward, kUnknown);
      sums.seconds += ValueOr(line, metric::kTimeStepS, 0) - ValueOr(line, metric::kTimeEvalS, 0);
    }
    const double reward = ValueOr(line, metric::kEvalRewardMean, kUnknown);
    if (!std::isfinite(reward)) continue;
    sums.step = step;
    sums.reward = reward;
    sums.minority = ValueOr(line, metric::kEvalMinorityShare, kUnknown);
    curve.points.push_back(sums);
    for (const auto& [name, value] : line) {
      if (const auto of = metric::kEvalByValueMean.ValueIn(name); of.has_value()) {
        auto& values = curve.by[std::string(*of)];
        values.resize(curve.points.size(), kUnknown);
        values.back() = value;
      }
    }
    strict.push_back(StrictMean(line));
    speckle.push_back(ValueOr(line, metric::kEvalSpeckleMean, kUnknown));
    minority.push_back(sums.minority);
  }
  for (auto& [value, rewards] : curve.by) rewards.resize(curve.points.size(), kUnknown);
  curve.final_reward =
      curve.points.empty() ? kUnknown : TrailingReward(curve, curve.points.size() - 1);
  curve.final_strict = FinalMean(strict);
  curve.final_speckle = FinalMean(speckle);
  curve.final_minority = FinalMean(minority);
  return curve;
}

LearningCurve CurveOfValue(const LearningCurve& curve, const std::string& value) {
  LearningCurve of;
  of.points = curve.points;
  const std::vector<double>& rewards = curve.by.at(value);
  for (size_t i = 0; i < of.points.size(); ++i) of.points[i].reward = rewards[i];
  of.final_reward = of.points.empty() ? kUnknown : TrailingReward(of, of.points.size() - 1);
  of.final_strict = of.final_speckle = of.final_minority = kUnknown;
  return of;
}

double MeanReward(const LearningCurve& curve) {
  if (curve.points.empty()) return kUnknown;
  double sum = 0;
  for (const CurvePoint& point : curve.points) sum += point.reward;
  return sum / static_cast<double>(curve.points.size());
}

double TrailingReward(const LearningCurve& curve, size_t i) {
  return TrailingMean(curve, i, &CurvePoint::reward);
}

double TrailingMinority(const LearningCurve& curve, size_t i) {
  return TrailingMean(curve, i, &CurvePoint::minority);
}

std::optional<size_t> PlaceReached(const LearningCurve& curve, double level) {
  for (size_t i = kTrailing - 1; i < curve.points.size(); ++i) {
    if (TrailingReward(curve, i) >= level) return i;
  }
  return std::nullopt;
}

std::optional<CurvePoint> Reached(const LearningCurve& curve, double level) {
  const std::optional<size_t> place = PlaceReached(curve, level);
  if (!place.has_value()) return std::nullopt;
  return curve.points[*place];
}

bool Collapsed(const LearningCurve& curve, double share) {
  double best = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < curve.points.size(); ++i) best = std::max(best, TrailingReward(curve, i));
  return !curve.points.empty() && curve.final_reward < share * best;
}

}  // namespace oxbow::io
