// SPDX-License-Identifier: Apache-2.0
#include "io/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/statistics.h"
#include "io/report/svg_chart.h"
#include "metrics/alert_limits.h"
#include "metrics/phase_words.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

constexpr double kErrors = 3;          // Standard errors that a change must exceed.
constexpr double kCollapse = 0.3;      // A share of the best held-out reward.
constexpr double kNearFull = 0.95;     // A share of the full reward: nothing is left to learn.
constexpr double kSpeckleSeen = 0.02;  // Below it people see no dust.
constexpr double kSpeckleBad = 0.06;
constexpr double kObservedFall = 0.1;  // A share of an observed reward.
constexpr double kScoringSeen = 0.01;  // Seconds of one group.
constexpr double kWaitWatch = 0.5, kWaitBad = 0.8, kOverheadWatch = 0.35;

using Values = std::vector<double>;

// The finite values among those at steps in (after, end].
Values Between(const std::vector<Point>& points, double after, double end) {
  Values values;
  for (const Point& point : points) {
    if (point.x > after && point.x <= end && std::isfinite(point.y)) values.push_back(point.y);
  }
  return values;
}

// The last part of a run: its last `share` of steps.
Values Late(const History& history, const std::string& name, double share) {
  const double end = history.last_step();
  return Between(history.Column(name), end * (1 - share) - 1e-9, end);
}

Values Early(const History& history, const std::string& name, double share) {
  return Between(history.Column(name), 0, std::max(1.0, history.last_step() * share));
}

struct Step {
  double step = 0;
  double value = 0;
};

// A number over a run's evaluations. The last value is the mean of three at most, without the
// first, because one evaluation is noisy.
struct Course {
  std::vector<Step> all;
  Step first, best, last;

  explicit Course(const std::vector<Point>& points) {
    for (const Point& point : points) {
      if (std::isfinite(point.y)) all.push_back({point.x, point.y});
    }
    if (all.empty()) return;
    first = best = last = all.front();
    for (size_t i = 1; i < all.size(); ++i) {
      const size_t begin = i < 3 ? 1 : i - 2;
      double sum = 0;
      for (size_t j = begin; j <= i; ++j) sum += all[j].value;
      last = {all[i].step, sum / static_cast<double>(i + 1 - begin)};
      if (last.value > best.value) best = last;
    }
  }
  double gain() const { return last.value - first.value; }
};

std::string Change(const Course& course) {
  return absl::StrCat(Number(course.first.value), " -> ", Number(course.last.value));
}

std::string StepText(double step) { return absl::StrFormat("%.0f", step); }

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

// The standard error of one evaluation's mean.
double NoiseOf(const History& history, const RunFacts& facts, double scale) {
  const Values spread = Early(history, metric::kTrainRewardStd, 0.2);
  const double one = spread.empty() ? 0.3 * std::abs(scale) : Mean(spread);
  return std::max(one, 1e-3 * std::abs(scale)) /
         std::sqrt(static_cast<double>(std::max(1U, facts.eval_images)));
}

// Steps of the last half that trained no sample, as a share; nothing if it was not counted.
std::optional<double> IdleShare(const History& history) {
  const Values trained = Late(history, metric::kTrainSamplesTrained, 0.5);
  if (trained.empty()) return std::nullopt;
  return static_cast<double>(std::count(trained.begin(), trained.end(), 0.0)) /
         static_cast<double>(trained.size());
}

// Why nothing is learnt although the run goes on; level kUnknown where none of these is the case.
VerdictLine Cause(const History& history) {
  // Before idle steps, whose usual reason it is.
  const Values equal = Late(history, metric::kTrainRewardZeroStdRatio, 0.3);
  if (!equal.empty() && Mean(equal) > metric::kZeroStdRatioMax.value) {
    return {"", Level::kBad,
            absl::StrCat("no signal: in ", Percent(Mean(equal)),
                         " of the groups all rewards are equal"),
            "a graded reward, a larger batch.group_size, more noise (sampling.eta) or replay; "
            "docs/runbooks/zero_std_ratio_high.md"};
  }
  if (const auto idle = IdleShare(history); idle > metric::kIdleStepsMax.value) {
    return {"", Level::kBad,
            absl::StrCat("stuck: ", Percent(*idle), " of the last steps trained no sample"),
            "docs/runbooks/steps_train_nothing.md"};
  }
  const Values silenced = Late(history, metric::kTrainClipFracZeroGrad, 0.3);
  if (!silenced.empty() && Mean(silenced) > metric::kClipZeroGradMax.value) {
    return {
        "", Level::kBad,
        absl::StrCat("stuck: the clip silences ", Percent(Mean(silenced)), " of the trained steps"),
        "a larger method.clip_range, or a lower optimizer.learning_rate; "
        "docs/runbooks/clip_fraction_saturated.md"};
  }
  return {};
}

VerdictLine Learning(const History& history, const RunFacts& facts) {
  VerdictLine line{"learning"};
  const bool held_out = history.First(metric::kEvalRewardMean).has_value();
  const Course course(
      history.Column(held_out ? metric::kEvalRewardMean : metric::kTrainRewardMean));
  const char* const what = held_out ? "held-out reward " : "training reward ";
  if (course.all.empty()) {
    line.says = "no step has been trained yet";
    return line;
  }
  const double noise = NoiseOf(history, facts, course.best.value);
  const double fell = course.best.value - course.last.value;
  const bool near_full =
      facts.full_reward.value_or(0) > 0 && course.last.value >= kNearFull * *facts.full_reward;
  line.says = absl::StrCat(what, Change(course));
  if (facts.full_reward) absl::StrAppend(&line.says, " of ", Number(*facts.full_reward));
  if (fell > kCollapse * std::abs(course.best.value) && fell > kErrors * noise) {
    line.level = Level::kBad;
    line.says = absl::StrCat("collapsed: ", what, Number(course.best.value), " at step ",
                             StepText(course.best.step), ", now ", Number(course.last.value));
    line.advice =
        "go back (oxbow rollback --to STEP) and lower optimizer.learning_rate, or hold "
        "the model with method.anchor.weight or method.kl_weight";
  } else if (course.gain() < -kErrors * noise) {
    line.level = Level::kBad;
    absl::StrAppend(&line.says, ": it falls");
    line.advice = "lower optimizer.learning_rate";
  } else if (near_full) {
    line.level = Level::kGood;
  } else if (const VerdictLine cause = Cause(history); cause.level == Level::kBad) {
    line.level = Level::kBad;
    line.says = absl::StrCat(cause.says, "; ", line.says);
    line.advice = cause.advice;
  } else if (course.all.size() < 3) {
    absl::StrAppend(&line.says, ": too early to say");
  } else if (course.gain() > kErrors * noise) {
    const bool past = fell > kErrors * std::sqrt(2.0) * noise;
    line.level = past ? Level::kWatch : Level::kGood;
    absl::StrAppend(&line.says, ", best ", Number(course.best.value), " at step ",
                    StepText(course.best.step));
    if (past) line.advice = "it is past its best: the best checkpoint is the better result";
  } else {
    const double done =
        facts.steps_total > 0 ? history.last_step() / static_cast<double>(facts.steps_total) : 1;
    line.level = done < 0.25 ? Level::kUnknown : done < 0.5 ? Level::kWatch : Level::kBad;
    absl::StrAppend(&line.says, ": no rise beyond the noise of an evaluation (",
                    Number(kErrors * noise), ")");
    if (line.level != Level::kUnknown) {
      line.says = absl::StrCat(line.level == Level::kBad ? "stuck: " : "", line.says);
      line.advice = "raise optimizer.learning_rate, or train more samples a step";
    }
  }
  return line;
}

// An observed reward, which is not trained on, that falls while the trained one rises.
std::optional<std::string> FallenObserver(const History& history, const RunFacts& facts) {
  for (const std::string& name :
       history.NamesWithPrefix(std::string(metric::kEvalRewardNameMean.before))) {
    const auto reward = metric::kEvalRewardNameMean.ValueIn(name);
    // A row says which of two right layouts was drawn: no quality.
    if (!reward || *reward == metric::kLayoutReward) continue;
    const Course course(history.Column(name));
    const double noise = NoiseOf(history, facts, course.first.value);
    if (course.all.size() < 3 || course.gain() > -kErrors * noise) continue;
    if (course.gain() > -kObservedFall * std::abs(course.first.value)) continue;
    return absl::StrCat(std::string(*reward), " fell while the reward rose: ", Change(course));
  }
  return std::nullopt;
}

// Whether the training reward rises while the held-out one falls, over the last half of the run.
bool Apart(const History& history, double noise) {
  const double end = history.last_step(), half = end / 2, late = end * 0.8;
  const auto change = [&](const char* name) {
    const std::vector<Point> column = history.Column(name);
    const Values before = Between(column, half - 1, end * 0.7), after = Between(column, late, end);
    return before.empty() || after.empty() ? 0 : Mean(after) - Mean(before);
  };
  const double trained = change(metric::kTrainRewardMean.name);
  const double held_out = change(metric::kEvalRewardMean.name);
  const auto level = history.Last(metric::kEvalRewardMean);
  const double limit = metric::kRewardsApartMin.value * std::abs(level ? level->y : 0);
  return trained > limit && held_out < -std::max(limit, kErrors * noise);
}

VerdictLine Honest(const History& history, const RunFacts& facts) {
  VerdictLine line{"honest"};
  const Course reward(history.Column(metric::kEvalRewardMean));
  const Course speckle(history.Column(metric::kEvalSpeckleMean));
  if (reward.all.size() < 2) {
    line.says = "not known before the second evaluation";
    return line;
  }
  const double from = speckle.first.value, to = speckle.last.value;
  const std::string dust = speckle.all.empty() ? "" : absl::StrCat("speckle ", Change(speckle));
  line.level = Level::kGood;
  if (!speckle.all.empty() && to > kSpeckleBad && to > 2 * from) {
    line.level = Level::kBad;
    line.says = absl::StrCat("the reward is paid for dust: ", dust);
    line.advice = "train the noisiest steps only (sampling.sde_count), set method.anchor.weight";
  } else if (!speckle.all.empty() && to > kSpeckleSeen && to > 1.5 * from) {
    line.level = Level::kWatch;
    line.says = absl::StrCat("pictures get dustier: ", dust);
    line.advice = "look at the pictures; method.anchor.weight holds the fine strokes";
  } else if (const auto fallen = FallenObserver(history, facts);
             fallen && reward.gain() > kErrors * NoiseOf(history, facts, reward.best.value)) {
    line.level = Level::kWatch;
    line.says = *fallen;
    line.advice = "look at the pictures: the trained reward may be paid for something else";
  } else if (Apart(history, NoiseOf(history, facts, reward.best.value))) {
    line.level = Level::kWatch;
    line.says = "the training reward rises while the held-out one falls";
    line.advice = "docs/runbooks/reward_up_held_out_down.md";
  } else {
    line.says = absl::StrCat("training and held-out rewards agree", dust.empty() ? "" : ", ", dust);
  }
  return line;
}

VerdictLine Diverse(const History& history) {
  VerdictLine line{"diverse"};
  const Course rare(history.Column(metric::kEvalMinorityShare));
  const Values before = Early(history, metric::kTrainGroupDistanceMean, 0.1);
  const Values after = Late(history, metric::kTrainGroupDistanceMean, 0.1);
  const bool apart = !before.empty() && !after.empty() && history.last_step() >= 5;
  std::vector<std::string> seen;
  if (rare.all.size() > 1) {
    line.level = Level::kGood;
    seen.push_back(absl::StrCat("the rarer layout's share ", Change(rare)));
    if (rare.first.value >= 0.1 && rare.last.value < 0.5 * rare.first.value) {
      line.level = rare.last.value < 0.05 ? Level::kBad : Level::kWatch;
    }
  }
  if (apart) {
    const double kept = Mean(after) / std::max(Mean(before), 1e-9);
    line.level = std::max(line.level, kept < 0.2   ? Level::kBad
                                      : kept < 0.4 ? Level::kWatch
                                                   : Level::kGood);
    seen.push_back(absl::StrCat("pictures of a group differ by ", Number(Mean(before)), " -> ",
                                Number(Mean(after))));
  }
  line.says = seen.empty() ? "not known before a few steps" : seen.front();
  if (seen.size() > 1) absl::StrAppend(&line.says, ", ", seen.back());
  if (line.level == Level::kBad) line.says = absl::StrCat("mode collapse: ", line.says);
  if (line.level >= Level::kWatch) {
    line.advice =
        "raise method.diversity.weight, set method.advantage_std: none, lower "
        "optimizer.learning_rate";
  }
  return line;
}

// Evaluations that lost much of what the run had and got it back later.
int Dips(const Course& course, double noise) {
  int dips = 0;
  double best = course.all.empty() ? 0 : course.all.front().value;
  bool low = false;
  for (const Step& step : course.all) {
    const double loss = best - step.value;
    const bool now = loss > 0.15 * std::abs(best) && loss > kErrors * noise;
    if (low && !now) ++dips;
    low = now;
    best = std::max(best, step.value);
  }
  return dips;
}

VerdictLine Stable(const History& history, const RunFacts& facts) {
  VerdictLine line{"stable"};
  const std::vector<Point> norms = history.Column(metric::kTrainGradNorm);
  const Values all = Between(norms, 0, history.last_step());
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
    line.level = all.size() < 5 ? Level::kUnknown : Level::kGood;
    line.says = absl::StrCat(all.size() < 5 ? "too early to say: " : "", "gradient norm ",
                             Number(late), ", median ", Number(median));
  }
  return line;
}

// How much of the rewards' time holds a step up, at most: a step waits no longer for its rewards
// than it waits for rollouts, and its rewards take no less time than those of one group. Nothing
// where rewards take no time to speak of.
std::string ExposedRewards(const History& history) {
  const Values waits = Late(history, metric::kTimeWaitS, 0.5);
  const Values scores = Late(history, metric::kRolloutRewardSMean, 0.5);
  if (waits.empty() || scores.empty() || Mean(scores) < kScoringSeen) return "";
  return absl::StrCat("; at most ", Percent(std::min(1.0, Mean(waits) / Mean(scores))),
                      " of the rewards' time holds a step up");
}

VerdictLine LimitedBy(const History& history, const RunFacts& facts) {
  VerdictLine line{"limited by"};
  std::map<std::string, double> seconds;
  double total = 0;
  for (const metric::PhaseWords& words : metric::kPhaseWords) {
    for (const double value : Late(history, metric::kTimePhaseS.Of(words.phase), 0.5)) {
      seconds[std::string(words.phase)] += value;
      total += value;
    }
  }
  if (!(total > 0)) {
    line.says = "no step has been timed yet";
    return line;
  }
  const auto most =
      std::max_element(seconds.begin(), seconds.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const double share = most->second / total;
  const metric::PhaseWords& words = *metric::WordsOf(most->first);
  const bool waits = most->first == "wait";
  line.level = Level::kGood;
  if (waits && share > kWaitBad) line.level = Level::kBad;
  if (waits && share > kWaitWatch && share <= kWaitBad) line.level = Level::kWatch;
  if (!waits && most->first != "update" && share > kOverheadWatch) line.level = Level::kWatch;
  line.says = absl::StrCat(line.level == Level::kBad ? "starved: " : "", std::string(words.limit),
                           ": ", std::string(words.doing), " ", Percent(share), " of the time");
  absl::StrAppend(&line.says, ExposedRewards(history));
  if (line.level >= Level::kWatch) line.advice = std::string(words.advice);
  const Values replayed = Late(history, metric::kTrainGroupsReplayed, 0.5);
  if (facts.replays && replayed.size() >= 10 && Mean(replayed) == 0) {
    line.level = std::max(line.level, Level::kWatch);
    absl::StrAppend(&line.says, "; no group of the last ", replayed.size(),
                    " steps got a replayed head");
    line.advice = "docs/runbooks/buffer_starved.md";
  }
  return line;
}

// Sentences stand in a column of their own, behind topic and level.
constexpr size_t kSentencesAt = 23;
constexpr size_t kSentenceMin = 20;

// Breaks a sentence between words; its further lines begin at `indent`.
std::string Wrapped(const std::string& sentence, size_t indent, size_t columns) {
  const size_t width = std::max(kSentenceMin, columns - std::min(columns, indent));
  std::string text;
  size_t used = 0;
  for (const absl::string_view word : absl::StrSplit(sentence, ' ')) {
    if (used > 0 && columns > 0 && used + 1 + word.size() > width) {
      absl::StrAppend(&text, "\n", std::string(indent, ' '));
      used = 0;
    }
    absl::StrAppend(&text, used > 0 ? " " : "", word);
    used += (used > 0) + word.size();
  }
  return text;
}

}  // namespace

const char* LevelWord(Level level) {
  switch (level) {
    case Level::kUnknown:
      return "not known";
    case Level::kGood:
      return "good";
    case Level::kWatch:
      return "watch";
    case Level::kBad:
      return "bad";
  }
  return "";
}

Verdict VerdictOf(const History& history, const RunFacts& facts) {
  return {Learning(history, facts), Honest(history, facts), Diverse(history),
          Stable(history, facts), LimitedBy(history, facts)};
}

std::string VerdictText(const Verdict& verdict, size_t columns) {
  std::string text;
  for (const VerdictLine& line : verdict) {
    absl::StrAppendFormat(&text, "%-11s %-9s  %s\n", line.topic, LevelWord(line.level),
                          Wrapped(line.says, kSentencesAt, columns));
    if (line.advice.empty()) continue;
    absl::StrAppend(&text, std::string(kSentencesAt, ' '), "-> ",
                    Wrapped(line.advice, kSentencesAt + 3, columns), "\n");
  }
  return text;
}

}  // namespace oxbow::io
