// SPDX-License-Identifier: Apache-2.0
// How fast a run learnt: where its held-out reward crosses a level, and what that had cost.
//
// An evaluation of a few hundred images is noisy, so a level is *reached* where the mean of three
// evaluations in a row meets it. The cost of evaluations is not counted.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace oxbow::io {

// Where a run was at one evaluation. Costs are sums since the run began.
struct CurvePoint {
  double step = 0;    // Committed learner steps.
  double reward = 0;  // Held-out, of this evaluation only.
  double images = 0;  // Sampled for training.
  double nfe3 = 0;    // Rows forward, and three for each row forward and backward; NaN: not logged.
  double seconds = 0;                                          // Wall clock without evaluations.
  double minority = std::numeric_limits<double>::quiet_NaN();  // Share of the rarer right layout.
};

struct LearningCurve {
  std::vector<CurvePoint> points;  // By step.
  // Means over the last three evaluations; NaN if never measured.
  double final_reward = 0;
  double final_strict = 0;
  double final_speckle = 0;
  double final_minority = 0;
  // Held-out reward of the prompts of one value of `eval.by`, by value and point; NaN where a point
  // has none.
  std::map<std::string, std::vector<double>> by;
};

// `lines` as read from metrics.jsonl.
LearningCurve CurveOf(const std::vector<std::map<std::string, double>>& lines);

// The curve of the prompts of one value of `eval.by`. Requires that `value` is in curve.by.
LearningCurve CurveOfValue(const LearningCurve& curve, const std::string& value);

// The mean held-out reward over all evaluations: high for a run that is fast, and stays high. NaN
// for a curve without points.
double MeanReward(const LearningCurve& curve);

// The mean of the three evaluations up to points[i], or of fewer at the beginning.
double TrailingReward(const LearningCurve& curve, size_t i);

// The mean of the rarer layout's share over the same evaluations; NaN where one of the three has
// none.
double TrailingMinority(const LearningCurve& curve, size_t i);

// The first point whose trailing mean of three meets `level`; nothing if none does.
std::optional<CurvePoint> Reached(const LearningCurve& curve, double level);
// The place of that point in the curve.
std::optional<size_t> PlaceReached(const LearningCurve& curve, double level);

// Whether reward fell, and stayed, under `share` of its best: the mean of the last three
// evaluations against the best trailing mean.
bool Collapsed(const LearningCurve& curve, double share = 0.7);

}  // namespace oxbow::io
