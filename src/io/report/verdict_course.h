// SPDX-License-Identifier: Apache-2.0
// Facts of a run for the lines of the verdict: parts of its columns, the course of a number over
// its evaluations, and how large a change must be to count. And the lines, each with its topic.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "io/metrics_file.h"
#include "io/report/run_facts.h"
#include "io/report/verdict.h"

namespace oxbow::io {

inline constexpr double kErrors = 3;       // Standard errors that a change must exceed.
inline constexpr double kEarlySteps = 20;  // Before them a run says nothing of learning.
inline constexpr size_t kEarlyEvaluations = 5;

// The finite values among those at steps in (after, end].
std::vector<double> Between(const std::vector<Point>& points, double after, double end);

// The values of the last part of a run, its last `share` of steps, and of its first.
std::vector<double> Late(const History& history, const std::string& name, double share);
std::vector<double> Early(const History& history, const std::string& name, double share);

struct CourseStep {
  double step = 0;
  double value = 0;
};

// A number over a run's evaluations. First, best and last are evaluations, as every page and table
// shows them. One evaluation is noisy: what is judged is the mean of the last three at most,
// without the first.
struct Course {
  std::vector<CourseStep> all;
  CourseStep first, best, last;
  double mean = 0;       // The mean of the last three.
  double best_mean = 0;  // The largest of such means so far.

  explicit Course(const std::vector<Point>& points);
  double gain() const { return mean - first.value; }
  // The loss from the best, by evaluations and by means.
  double fall() const { return std::min(best.value - last.value, best_mean - mean); }
};

// The held-out reward, or of a run that is not evaluated the training reward.
Course RewardCourse(const History& history);

// Whether the run has too few steps or evaluations for a trend.
bool TooEarly(const History& history);
// "too early to say (3 of 5 evaluations)", of such a run.
std::string TooEarlyText(const History& history);

// The standard error of one evaluation's mean of a reward, from its spread among the run's first
// samples; without one, from `scale`, its size. Without a name, of the weighted sum.
double NoiseOf(const History& history, const RunFacts& facts, double scale,
               const std::string& reward = "");

// The number that a reward gave every picture of late; nothing where pictures got several, or none
// was scored. Without a name, of the weighted sum.
std::optional<double> SameNumber(const History& history, const std::string& reward = "");

// "0.2 -> 0.9", or where the mean went the other way "0.5 -> 0.6 (0.4 in the mean of three)".
std::string Change(const Course& course);
// "37", "75 %".
std::string StepText(double step);
std::string Percent(double share);

// The lines of the verdict, each with its topic.
//
// Whether the reward rises, and if not, why: scores that are missing come first, then a reward
// that tells no picture from another.
VerdictLine Learning(const History& history, const RunFacts& facts);

// Whether the reward is paid for what people do not want.
VerdictLine Honest(const History& history, const RunFacts& facts);

// Whether the pictures of a prompt still differ.
VerdictLine Diverse(const History& history);

// Whether gradients and held-out rewards are steady.
VerdictLine Stable(const History& history, const RunFacts& facts);

// The phase that takes most of the time, one that had not ended when the run was stopped included.
VerdictLine LimitedBy(const History& history, const RunFacts& facts);

}  // namespace oxbow::io
