#include "io/report/learning_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

// Mean of the last three finite values.
double FinalMean(const std::vector<double>& values) {
  std::vector<double> kept;
  for (auto it = values.rbegin(); it != values.rend() && kept.size() < kTrailing; ++it) {
    if (std::isfinite(*it)) kept.push_back(*it);
  }
  if (kept.empty()) return kUnknown;
  return Mean(kept);
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
      sums.images += ValueOr(line, metric::kTrainSamples, 0);
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
    curve.points.push_back(sums);
    strict.push_back(ValueOr(line, metric::kEvalShortMean.Of("strict"), kUnknown));
    speckle.push_back(ValueOr(line, metric::kEvalSpeckleMean, kUnknown));
    minority.push_back(ValueOr(line, metric::kEvalMinorityShare, kUnknown));
  }
  curve.final_reward =
      curve.points.empty() ? kUnknown : TrailingReward(curve, curve.points.size() - 1);
  curve.final_strict = FinalMean(strict);
  curve.final_speckle = FinalMean(speckle);
  curve.final_minority = FinalMean(minority);
  return curve;
}

double TrailingReward(const LearningCurve& curve, size_t i) {
  OXBOW_CHECK(i < curve.points.size()) << "evaluation " << i << " of " << curve.points.size();
  const size_t first = i + 1 >= kTrailing ? i + 1 - kTrailing : 0;
  double sum = 0;
  for (size_t j = first; j <= i; ++j) sum += curve.points[j].reward;
  return sum / static_cast<double>(i + 1 - first);
}

std::optional<CurvePoint> Reached(const LearningCurve& curve, double level) {
  for (size_t i = kTrailing - 1; i < curve.points.size(); ++i) {
    if (TrailingReward(curve, i) >= level) return curve.points[i];
  }
  return std::nullopt;
}

bool Collapsed(const LearningCurve& curve, double share) {
  double best = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < curve.points.size(); ++i) best = std::max(best, TrailingReward(curve, i));
  return !curve.points.empty() && curve.final_reward < share * best;
}

}  // namespace oxbow::io
