// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict_course.h"
#include "metrics/alert_limits.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

constexpr double kCollapse = 0.3;   // A share of the best held-out reward.
constexpr double kNearFull = 0.95;  // A share of the full reward: nothing is left to learn.
constexpr double kUnscoredWatch = 0.05, kUnscoredBad = 0.5;
constexpr double kFailedWatch = 0.1;

// The share of the last pictures without a score.
double UnscoredShare(const History& history) {
  const std::vector<double> unscored = Late(history, metric::kTrainSamplesUnscored, 0.5);
  const std::vector<double> samples = Late(history, metric::kTrainSamples, 0.5);
  const double all = std::accumulate(samples.begin(), samples.end(), 0.);
  return all > 0 ? std::accumulate(unscored.begin(), unscored.end(), 0.) / all : 0;
}

std::string UnscoredText(double share, const RunFacts& facts) {
  return absl::StrCat(
      share < 0.01 ? "under 1 %" : Percent(share), " of the pictures have no score",
      facts.unscored_reason.empty() ? "" : absl::StrCat(": \"", facts.unscored_reason, "\""));
}

struct FailedEvaluations {
  size_t failed = 0;
  size_t all = 0;
};

FailedEvaluations FailedOf(const History& history) {
  const size_t failed = history.Count(metric::kEvalFailed);
  return {failed, failed + history.Count(metric::kEvalRewardMean)};
}

std::string FailedText(const FailedEvaluations& evaluations, const RunFacts& facts) {
  return absl::StrCat(evaluations.failed, " of ", evaluations.all,
                      evaluations.all == 1 ? " evaluation failed" : " evaluations failed",
                      facts.evaluation_failure.empty() ? "" : ": ", facts.evaluation_failure);
}

// Steps of the last half that trained no sample, as a share; nothing if it was not counted.
std::optional<double> IdleShare(const History& history) {
  const std::vector<double> trained = Late(history, metric::kTrainSamplesTrained, 0.5);
  if (trained.empty()) return std::nullopt;
  return static_cast<double>(std::count(trained.begin(), trained.end(), 0.0)) /
         static_cast<double>(trained.size());
}

// Where groups have equal rewards because their prompts are too easy or too hard for the model:
// how, and what would help. Nothing where the scale of the reward is not known, or the level is
// neither.
std::optional<VerdictLine> UnfitPrompts(const History& history, const RunFacts& facts) {
  const std::vector<double> rewards = Late(history, metric::kTrainRewardMean, 0.3);
  if (rewards.empty() || !facts.full_reward) return std::nullopt;
  const double low = facts.reward_min.value_or(0);
  const double share = (Mean(rewards) - low) / (*facts.full_reward - low);
  if (share >= kNearFull) {
    return VerdictLine{
        "", Level::kBad,
        absl::StrCat("at ", Number(Mean(rewards)), " of ", Number(*facts.full_reward),
                     ": the prompts (prompts.train) are too easy for this model"),
        "harder prompts, or a reward that tells good pictures apart"};
  }
  if (share <= 1 - kNearFull) {
    return VerdictLine{"", Level::kBad,
                       absl::StrCat("at ", Number(Mean(rewards)),
                                    ": the prompts (prompts.train) are too hard for this model"),
                       "prompts that it sometimes solves, a reward that pays for a part, a larger "
                       "batch.group_size or replay"};
  }
  return std::nullopt;
}

// Why nothing is learnt although the run goes on; level kUnknown where none of these is the case.
VerdictLine Cause(const History& history, const RunFacts& facts) {
  if (const auto same = SameNumber(history)) {
    return {"", Level::kBad,
            absl::StrCat("the reward gives every picture the same number (", Number(*same),
                         "): look at it with oxbow score"),
            "docs/runbooks/zero_std_ratio_high.md"};
  }
  // Before idle steps, whose usual reason it is.
  const std::vector<double> equal = Late(history, metric::kTrainRewardZeroStdRatio, 0.3);
  if (!equal.empty() && Mean(equal) > metric::kZeroStdRatioMax.value) {
    const std::string page = "; docs/runbooks/zero_std_ratio_high.md";
    const std::string same = absl::StrCat("no signal: in ", Percent(Mean(equal)),
                                          " of the groups all rewards are equal");
    if (const auto prompts = UnfitPrompts(history, facts)) {
      return {"", Level::kBad, absl::StrCat(same, ", ", prompts->says), prompts->advice + page};
    }
    return {
        "", Level::kBad, same,
        "a graded reward, a larger batch.group_size, more noise (sampling.eta) or replay" + page};
  }
  if (const auto idle = IdleShare(history); idle > metric::kIdleStepsMax.value) {
    return {"", Level::kBad,
            absl::StrCat("stuck: ", Percent(*idle), " of the last steps trained no sample"),
            "docs/runbooks/steps_train_nothing.md"};
  }
  const std::vector<double> silenced = Late(history, metric::kTrainClipFracZeroGrad, 0.3);
  if (!silenced.empty() && Mean(silenced) > metric::kClipZeroGradMax.value) {
    return {
        "", Level::kBad,
        absl::StrCat("stuck: the clip silences ", Percent(Mean(silenced)), " of the trained steps"),
        "a larger method.clip_range, or a lower optimizer.learning_rate; "
        "docs/runbooks/clip_fraction_saturated.md"};
  }
  return {};
}

// One of several trained rewards that tells no picture from another; "" if there is none.
std::string DeadTerm(const History& history, const RunFacts& facts) {
  if (facts.terms.size() < 2) return "";
  for (const std::string& term : facts.terms) {
    const auto same = SameNumber(history, term);
    if (!same) continue;
    return absl::StrCat(term, " gives every picture the same number (", Number(*same), ")");
  }
  return "";
}

// Names a trained reward whose trouble the rising sum of all of them hides; "" if there is none.
std::string HiddenTerm(const History& history, const RunFacts& facts) {
  if (facts.terms.size() < 2) return "";
  if (const std::string dead = DeadTerm(history, facts); !dead.empty()) return dead;
  for (const std::string& term : facts.terms) {
    const Course course(history.Column(metric::kEvalRewardNameMean.Of(term)));
    if (course.all.size() < kEarlyEvaluations) continue;
    const double least = kErrors * NoiseOf(history, facts, course.first.value, term);
    if (course.gain() < -least) return absl::StrCat(term, " falls: ", Change(course));
    const bool full = facts.full_reward.has_value() && course.mean >= kNearFull;
    if (course.gain() <= least && !full) {
      return absl::StrCat(term, " does not move: ", Change(course));
    }
  }
  return "";
}

// Adds it to the line of a reward that is good.
void NameHiddenTerm(const History& history, const RunFacts& facts, VerdictLine& line) {
  const std::string term = HiddenTerm(history, facts);
  if (term.empty() || line.level != Level::kGood) return;
  line.level = Level::kWatch;
  absl::StrAppend(&line.says, "; ", term);
  line.advice =
      "look at it with oxbow score; raise its weight in reward.terms, or set method.reward_mix";
}

// The line of a reward that rises.
void JudgeRise(const Course& course, bool past, VerdictLine& line) {
  line.level = past ? Level::kWatch : Level::kGood;
  absl::StrAppend(&line.says, ", best ", Number(course.best.value), " at step ",
                  StepText(course.best.step));
  if (past) line.advice = "it is past its best: the best checkpoint is the better result";
}

void JudgeStandstill(const History& history, const RunFacts& facts, double noise,
                     VerdictLine& line) {
  const double done =
      facts.steps_total > 0 ? history.last_step() / static_cast<double>(facts.steps_total) : 1;
  line.level = done < 0.25 ? Level::kUnknown : done < 0.5 ? Level::kWatch : Level::kBad;
  absl::StrAppend(&line.says, ": no rise beyond the noise of an evaluation (",
                  Number(kErrors * noise), ")");
  const std::string dead = DeadTerm(history, facts);
  if (!dead.empty()) absl::StrAppend(&line.says, "; ", dead);
  if (line.level == Level::kUnknown) return;
  line.says = absl::StrCat(line.level == Level::kBad ? "stuck: " : "", line.says);
  line.advice = "raise optimizer.learning_rate, or train more samples a step";
}

VerdictLine LearningOfScored(const History& history, const RunFacts& facts, const Course& course) {
  VerdictLine line{"learning"};
  const bool held_out = history.First(metric::kEvalRewardMean).has_value();
  const char* const what = held_out ? "held-out reward " : "training reward ";
  const bool early = TooEarly(history);
  const double noise = NoiseOf(history, facts, course.best.value);
  const double fell = course.fall();
  const bool near_full =
      facts.full_reward.value_or(0) > 0 && course.mean >= kNearFull * *facts.full_reward;
  line.says = absl::StrCat(what, Change(course));
  if (facts.full_reward) absl::StrAppend(&line.says, " of ", Number(*facts.full_reward));
  // Few evaluations show a collapse, too.
  if (history.last_step() >= kEarlySteps && course.all.size() > 2 &&
      fell > kCollapse * std::abs(course.best.value) && fell > kErrors * noise) {
    line.level = Level::kBad;
    line.says = absl::StrCat("collapsed: ", what, Number(course.best.value), " at step ",
                             StepText(course.best.step), ", now ", Number(course.last.value));
    line.advice =
        "go back (oxbow rollback --to STEP) and lower optimizer.learning_rate, or hold "
        "the model with method.anchor.weight or method.kl_weight";
  } else if (!early && course.gain() < -kErrors * noise) {
    line.level = Level::kBad;
    absl::StrAppend(&line.says, ": it falls");
    line.advice = "lower optimizer.learning_rate";
  } else if (!early && near_full) {
    line.level = Level::kGood;
  } else if (const VerdictLine cause = near_full ? VerdictLine() : Cause(history, facts);
             cause.level == Level::kBad) {
    line.level = Level::kBad;
    line.says = absl::StrCat(cause.says, "; ", line.says);
    line.advice = cause.advice;
  } else if (early) {
    line.says = absl::StrCat(TooEarlyText(history), ": ", line.says);
  } else if (course.gain() > kErrors * noise) {
    JudgeRise(course, fell > kErrors * std::sqrt(2.0) * noise, line);
  } else {
    JudgeStandstill(history, facts, noise, line);
  }
  NameHiddenTerm(history, facts, line);
  return line;
}

}  // namespace

VerdictLine Learning(const History& history, const RunFacts& facts) {
  const Course course = RewardCourse(history);
  const double unscored = UnscoredShare(history);
  if (unscored > kUnscoredBad) {
    return {"learning", Level::kBad, UnscoredText(unscored, facts),
            "try the reward on pictures with oxbow score; docs/troubleshooting.md"};
  }
  VerdictLine line{"learning", Level::kUnknown, "no step has been trained yet"};
  if (!course.all.empty()) line = LearningOfScored(history, facts, course);
  const FailedEvaluations evaluations = FailedOf(history);
  if (evaluations.failed > 0 && evaluations.failed == evaluations.all) {
    return {"learning", Level::kBad, absl::StrCat(FailedText(evaluations, facts), "; ", line.says),
            "try the reward on pictures with oxbow score, or make it score what it can"};
  }
  if (evaluations.failed > 0) {
    absl::StrAppend(&line.says, "; ", FailedText(evaluations, facts));
    const auto all = static_cast<double>(evaluations.all);
    if (static_cast<double>(evaluations.failed) > kFailedWatch * all) {
      line.level = std::max(line.level, Level::kWatch);
    }
  }
  if (unscored > 0) absl::StrAppend(&line.says, "; ", UnscoredText(unscored, facts));
  if (unscored > kUnscoredWatch && line.level < Level::kWatch) {
    line.level = Level::kWatch;
    line.advice = "try the reward on pictures with oxbow score";
  }
  return line;
}

}  // namespace oxbow::io
