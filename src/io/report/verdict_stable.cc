// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict_course.h"
#include "io/report/verdict_lines.h"
#include "metrics/alert_limits.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

constexpr size_t kEarlyNorms = 5;

// Evaluations that lost much of what the run had and got it back later.
int Dips(const Course& course, double noise) {
  int dips = 0;
  double best = course.all.empty() ? 0 : course.all.front().value;
  bool low = false;
  for (const CourseStep& step : course.all) {
    const double loss = best - step.value;
    const bool now = loss > 0.15 * std::abs(best) && loss > kErrors * noise;
    if (low && !now) ++dips;
    low = now;
    best = std::max(best, step.value);
  }
  return dips;
}

}  // namespace

VerdictLine Stable(const History& history, const RunFacts& facts) {
  VerdictLine line{"stable"};
  const std::vector<Point> norms = history.Column(metric::kTrainGradNorm);
  const std::vector<double> all = Between(norms, 0, history.last_step());
  const auto broken = std::find_if(norms.begin(), norms.end(),
                                   [](const Point& point) { return !std::isfinite(point.y); });
  if (norms.empty()) {
    line.says = "no step has been trained yet";
    return line;
  }
  const double median = Quantile(all, 0.5);
  const double late = Mean(Late(history, metric::kTrainGradNorm, 0.1));
  const double limit = metric::kGradNormMediansMax.value * median;
  const auto peak = std::max_element(norms.begin(), norms.end(),
                                     [](const auto& a, const auto& b) { return a.y < b.y; });
  const Course course(history.Column(metric::kEvalRewardMean));
  const int dips = Dips(course, NoiseOf(history, facts, course.best.value));
  const auto error = history.Last(metric::kTrainOnpolicyRatioErr);
  const auto allowed = history.Last(metric::kTrainOnpolicyRatioLimit);
  line.level = Level::kBad;
  if (broken != norms.end()) {
    line.says = absl::StrCat("the gradient was not a finite number at step ", StepText(broken->x));
    line.advice = "docs/runbooks/gradient_not_finite.md";
  } else if (median > 0 && late > limit) {
    line.says = absl::StrCat("the gradient norm is ", Number(late), ", over ten times its median ",
                             Number(median));
    line.advice = "docs/runbooks/gradient_exploding.md";
  } else if (dips > 1) {
    line.says = absl::StrCat("the held-out reward swings: it fell by over 15 % and came back ",
                             dips, " times");
    line.advice = "lower optimizer.learning_rate, larger batch.groups, optimizer.warmup_updates";
  } else if (error && allowed && error->y > allowed->y) {
    line.says = absl::StrCat("on-policy ratios are off by ", Number(error->y),
                             ": worker and learner disagree");
    line.advice = "docs/runbooks/ratio_not_one.md";
  } else if (dips == 1 || (median > 0 && peak->y > limit)) {
    line.level = Level::kWatch;
    line.says = dips == 1 ? "the held-out reward fell once by over 15 % and came back"
                          : absl::StrCat("a gradient norm of ", Number(peak->y), " at step ",
                                         StepText(peak->x), ", median ", Number(median));
    line.advice = "if it comes again: lower optimizer.learning_rate";
  } else {
    const bool early = all.size() < kEarlyNorms;
    line.level = early ? Level::kUnknown : Level::kGood;
    line.says = absl::StrCat(
        early ? absl::StrCat("too early to say (", all.size(), " of ", kEarlyNorms, " steps): ")
              : "",
        "gradient norm ", Number(late), ", median ", Number(median));
  }
  return line;
}

}  // namespace oxbow::io
