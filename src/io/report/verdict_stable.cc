// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/statistics.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict_course.h"
#include "metrics/alert_limits.h"
#include "metrics/phase_words.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {

namespace {

constexpr double kScoringSeen = 0.01;  // Seconds of one group.
constexpr double kAwaySeen = 5;        // Seconds without a reward server before the first step.
constexpr double kRewardsHold = 0.5;   // Their time as a part of the wait for rollouts.
constexpr double kWaitWatch = 0.5, kWaitBad = 0.8, kOverheadWatch = 0.35;

// The most that faster rewards save: a step waits no longer for them than for rollouts, and they
// take no less time than those of one group. Nothing where they take next to none, or all of it.
std::string ExposedRewards(const History& history) {
  const std::vector<double> waits = Late(history, metric::kTimeWaitS, 0.5);
  const std::vector<double> scores = Late(history, metric::kRolloutRewardSMean, 0.5);
  if (waits.empty() || scores.empty() || Mean(scores) < kScoringSeen) return "";
  const double exposed = Mean(waits) / Mean(scores);
  if (exposed >= 1) return "";
  if (exposed < 0.005) return "; all scoring overlaps with other work, faster rewards save nothing";
  return absl::StrCat("; at least ", Percent(1 - exposed),
                      " of scoring overlaps with other work, faster rewards save the rest at most");
}

// Rollouts are late because their rewards are slow: more workers would wait for the same servers.
std::string SlowRewards(const History& history) {
  const double wait = Mean(Late(history, metric::kTimeWaitS, 0.5));
  const double score = Mean(Late(history, metric::kRolloutRewardSMean, 0.5));
  if (score < kScoringSeen || score < kRewardsHold * wait) return "";
  return absl::StrFormat(
      "rewards take %.3g s of a group: more reward servers (services.reward_servers, "
      "reward.endpoints), faster rewards, or older weights (off_policy.staleness_max)",
      score);
}

// Seconds by phase over the last half of the run, and since its last step where it was stopped.
// Before the first step only a run that was stopped, or that waited for reward servers, says what
// took its time.
std::map<std::string, double> SecondsByPhase(const History& history) {
  const double end = history.last_step();
  std::map<std::string, double> ended, unfinished;
  for (const metric::PhaseWords& words : metric::kPhaseWords) {
    const std::string phase(words.phase);
    const std::string name = metric::kTimePhaseS.Of(phase);
    for (const double value : Late(history, name, 0.5)) {
      ended[phase] += value * history.Weight(name);
    }
    const auto cut_off = history.Last(metric::kTimeUnfinishedPhaseS.Of(phase));
    if (cut_off && cut_off->x == end) unfinished[phase] += cut_off->y;
  }
  if (end == 0 && unfinished.empty() && ended["rewards"] < kAwaySeen) return {};
  for (const auto& [phase, seconds] : unfinished) ended[phase] += seconds;
  return ended;
}

// Whether the learner itself does nothing in a phase.
bool Waits(const std::string& phase) { return phase == "wait" || phase == "rewards"; }

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

VerdictLine LimitedBy(const History& history, const RunFacts& facts) {
  VerdictLine line{"limited by"};
  const std::map<std::string, double> seconds = SecondsByPhase(history);
  double total = 0;
  for (const auto& [phase, value] : seconds) total += value;
  if (!(total > 0)) {
    line.says = "no step has been timed yet";
    return line;
  }
  const auto most =
      std::max_element(seconds.begin(), seconds.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const double share = most->second / total;
  const metric::PhaseWords& words = *metric::WordsOf(most->first);
  const bool waits = Waits(most->first);
  line.level = Level::kGood;
  if (waits && share > kWaitBad) line.level = Level::kBad;
  if (waits && share > kWaitWatch && share <= kWaitBad) line.level = Level::kWatch;
  if (!waits && most->first != "update" && share > kOverheadWatch) line.level = Level::kWatch;
  line.says = absl::StrCat(history.last_step() == 0 ? "before the first step: " : "",
                           line.level == Level::kBad ? "starved: " : "", std::string(words.limit),
                           ": ", std::string(words.doing), " ", Percent(share), " of the time");
  absl::StrAppend(&line.says, ExposedRewards(history));
  if (line.level >= Level::kWatch) line.advice = std::string(words.advice);
  if (const std::string slow = SlowRewards(history); !slow.empty() && most->first == "wait") {
    if (line.level >= Level::kWatch) line.advice = slow;
  }
  // Heads are drawn meanwhile.
  if (line.level >= Level::kWatch && most->first == "plan" && facts.replays) {
    line.advice += ", look at the replay buffer";
  }
  const std::vector<double> replayed = Late(history, metric::kTrainGroupsReplayed, 0.5);
  if (facts.replays && replayed.size() >= 10 && Mean(replayed) == 0) {
    line.level = std::max(line.level, Level::kWatch);
    absl::StrAppend(&line.says, "; no group of the last ", replayed.size(),
                    " steps got a replayed head");
    line.advice = "docs/runbooks/buffer_starved.md";
  }
  return line;
}

}  // namespace oxbow::io
