// SPDX-License-Identifier: Apache-2.0
// A reward can be paid for what it does not see. Dust is told where pictures are black and white.
// Photographs are compared with the base model's of the same noise, in units of how much the base
// model's pictures differ from each other (docs/reading_the_charts.md).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/statistics.h"
#include "core/reward/synthetic_task.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict_course.h"
#include "metrics/alert_limits.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

constexpr double kSpeckleSeen = 0.02;  // Below it people see no dust.
constexpr double kSpeckleBad = 0.06;
constexpr double kObservedFall = 0.1;  // A share of an observed reward.
constexpr double kDescribedMove = 0.5;
// Spreads of the base model's pictures that the mean may move.
constexpr double kLooksWatch = 0.5, kLooksBad = 1;
constexpr double kSameLooks = 0.25;      // A spread is this share of the mean at least.
constexpr double kUnrelatedWatch = 0.9;  // A share of the distance between two prompts' pictures.

// A property of photographs that people notice.
struct Looks {
  const char* name;
  metric::StepMetric mean;
  metric::StepMetric spread;
  double seen;           // People see no change below it.
  const char* more;      // The fault of pictures that have more of it,
  const char* more_fix;  // and the settings that prevent it.
  const char* less;
};

constexpr char kHoldFine[] =
    "train the noisiest steps only (sampling.sde_count), set method.anchor.weight or "
    "method.kl_weight";
constexpr char kHoldAll[] =
    "set method.kl_weight or method.anchor.weight, or add a reward for looks";

constexpr std::array<Looks, 3> kLooks = {{
    {"saturated pixels", metric::kEvalSaturatedShare, metric::kEvalSaturatedShareStd, 0.02,
     "light and colours are overdriven", kHoldAll, "pictures become pale"},
    {"fine detail", metric::kEvalFineDetail, metric::kEvalFineDetailStd, 0.004,
     "pictures become noisy", kHoldFine, "pictures become smooth"},
    {"sharpness", metric::kEvalSharpness, metric::kEvalSharpnessStd, 0.02, "edges become hard",
     kHoldFine, "pictures become blurred"},
}};

// How far one of them has moved from the base model's, in spreads of the base model's pictures.
struct Move {
  const Looks* of = nullptr;
  double spreads = 0;
  double spread = 0;
  std::string change;
};

// The held-out prompts of a run may change when it is resumed. From there on its pictures have no
// distance, and their looks are those of other motives.
bool OtherPrompts(const History& history) {
  const auto distance = history.Last(metric::kEvalBaseDistance);
  const auto looks = history.Last(metric::kEvalSharpness);
  return distance && looks && distance->x < looks->x;
}

std::vector<Move> MovesOf(const History& history) {
  std::vector<Move> moves;
  if (OtherPrompts(history)) return moves;
  for (const Looks& looks : kLooks) {
    const Course course(history.Column(looks.mean));
    const auto spread = history.First(looks.spread);
    // Only step 0 has the base model's.
    if (course.all.size() < 2 || course.first.step > 0 || !spread || spread->x > 0) continue;
    const double unit =
        std::max({spread->y, kSameLooks * std::abs(course.first.value), looks.seen});
    moves.push_back(
        {&looks, course.gain() / unit, spread->y, absl::StrCat(looks.name, " ", Change(course))});
  }
  return moves;
}

// The looks that moved most, if it is too far. Means of few pictures move by chance.
std::optional<VerdictLine> LooksThatMoved(const History& history, const RunFacts& facts) {
  const std::vector<Move> moves = MovesOf(history);
  const auto most = std::max_element(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return std::abs(a.spreads) < std::abs(b.spreads);
  });
  if (most == moves.end()) return std::nullopt;
  const double chance = kErrors * std::sqrt(2.0 / std::max(1U, facts.eval_images));
  const double far = std::abs(most->spreads);
  if (far <= std::max(kLooksWatch, chance)) return std::nullopt;
  const bool more = most->spreads > 0;
  return VerdictLine{
      "honest", far > std::max(kLooksBad, chance) ? Level::kBad : Level::kWatch,
      absl::StrCat(more ? most->of->more : most->of->less, ": ", most->change,
                   ", where the base model's pictures differ by ", Number(most->spread)),
      absl::StrCat("look at the pictures; ", more ? most->of->more_fix : kHoldAll)};
}

// "saturated pixels 0.04 -> 0.05, fine detail 0.02 -> 0.02, ...": what there is of it.
std::string LooksText(const History& history) {
  std::string text;
  for (const Move& move : MovesOf(history)) absl::StrAppend(&text, ", ", move.change);
  const auto distance = history.Last(metric::kEvalBaseDistance);
  if (!text.empty() && distance) {
    absl::StrAppend(&text, ", distance to the base model's pictures ", Number(distance->y));
  }
  return text;
}

struct Observed {
  std::string name;
  Course course;
  double noise;  // A change up to this is not counted as a move.
};

// The rewards that are not trained on and say something of quality, or describe pictures.
std::vector<Observed> ObservedRewards(const History& history, const RunFacts& facts) {
  std::vector<Observed> observed;
  for (const std::string& key :
       history.NamesWithPrefix(std::string(metric::kEvalRewardNameMean.before))) {
    const auto reward = metric::kEvalRewardNameMean.ValueIn(key);
    if (!reward || reward::SaysLayout(*reward)) continue;
    const std::string name(*reward);
    if (std::find(facts.terms.begin(), facts.terms.end(), name) != facts.terms.end()) continue;
    const Course course(history.Column(key));
    if (course.all.size() < 3) continue;
    observed.push_back({name, course, kErrors * NoiseOf(history, facts, course.first.value, name)});
  }
  return observed;
}

// An observed reward that falls while the trained one rises, or that moves far and describes
// pictures; "" if there is none.
std::string MovedObserver(const std::vector<Observed>& observed, const RunFacts& facts) {
  for (const Observed& one : observed) {
    const double gain = one.course.gain(), start = std::abs(one.course.first.value);
    if (std::abs(gain) <= one.noise) continue;
    const bool describes = std::find(facts.descriptive.begin(), facts.descriptive.end(),
                                     one.name) != facts.descriptive.end();
    const bool moved =
        describes ? std::abs(gain) > kDescribedMove * start : gain < -kObservedFall * start;
    if (!moved) continue;
    return absl::StrCat(one.name, gain < 0 ? " fell" : " rose",
                        " while the reward rose: ", Change(one.course));
  }
  return "";
}

// "; observed: aesthetic 5.1 -> 5.6": those that moved.
std::string ObservedText(const std::vector<Observed>& observed) {
  std::string text;
  for (const Observed& one : observed) {
    if (std::abs(one.course.gain()) <= one.noise) continue;
    absl::StrAppend(&text, text.empty() ? "; observed: " : ", ", one.name, " ", Change(one.course));
  }
  return text;
}

// Whether the training reward rises while the held-out one falls, over the last half of the run.
bool Apart(const History& history, double noise) {
  const double end = history.last_step(), half = end / 2, late = end * 0.8;
  const auto change = [&](const char* name) {
    const std::vector<Point> column = history.Column(name);
    const std::vector<double> before = Between(column, half - 1, end * 0.7);
    const std::vector<double> after = Between(column, late, end);
    return before.empty() || after.empty() ? 0 : Mean(after) - Mean(before);
  };
  const double trained = change(metric::kTrainRewardMean.name);
  const double held_out = change(metric::kEvalRewardMean.name);
  const auto level = history.Last(metric::kEvalRewardMean);
  const double limit = metric::kRewardsApartMin.value * std::abs(level ? level->y : 0);
  return trained > limit && held_out < -std::max(limit, kErrors * noise);
}

// Dust in pictures that should be black and white.
std::optional<VerdictLine> DustThatRose(const Course& speckle) {
  const double from = speckle.first.value, to = speckle.mean;
  if (to > kSpeckleBad && to > 2 * from) {
    return VerdictLine{
        "honest", Level::kBad,
        absl::StrCat("the reward is paid for dust: speckle ", Change(speckle)),
        "train the noisiest steps only (sampling.sde_count), set method.anchor.weight"};
  }
  if (to > kSpeckleSeen && to > 1.5 * from) {
    return VerdictLine{"honest", Level::kWatch,
                       absl::StrCat("pictures get dustier: speckle ", Change(speckle)),
                       "look at the pictures; method.anchor.weight holds the fine strokes"};
  }
  return std::nullopt;
}

}  // namespace

VerdictLine Honest(const History& history, const RunFacts& facts) {
  VerdictLine line{"honest"};
  const Course reward(history.Column(metric::kEvalRewardMean));
  const Course speckle(history.Column(metric::kEvalSpeckleMean));
  if (reward.all.size() < 2) {
    line.says = TooEarly(history) ? TooEarlyText(history) : "no second evaluation to compare with";
    return line;
  }
  const std::string looks =
      speckle.all.empty() ? LooksText(history) : absl::StrCat(", speckle ", Change(speckle));
  if (TooEarly(history)) {
    line.says = absl::StrCat(TooEarlyText(history), ": held-out reward ", Change(reward), looks);
    return line;
  }
  const auto worse = speckle.all.empty() ? LooksThatMoved(history, facts) : DustThatRose(speckle);
  if (worse) return *worse;
  const double noise = NoiseOf(history, facts, reward.best.value);
  const std::vector<Observed> observed = ObservedRewards(history, facts);
  const std::string moved = MovedObserver(observed, facts);
  const auto distance = history.Last(metric::kEvalBaseDistance);
  line.level = Level::kWatch;
  if (!moved.empty() && reward.gain() > kErrors * noise) {
    line.says = moved;
    line.advice = "look at the pictures: the trained reward may be paid for something else";
  } else if (Apart(history, noise)) {
    line.says = "the training reward rises while the held-out one falls";
    line.advice = "docs/runbooks/reward_up_held_out_down.md";
  } else if (speckle.all.empty() && distance && distance->y > kUnrelatedWatch &&
             !OtherPrompts(history)) {
    line.says = absl::StrCat("little of the base model's pictures is left: distance ",
                             Number(distance->y), ", and 1 is that of two prompts");
    line.advice = absl::StrCat("look at the pictures; ", kHoldAll);
  } else {
    line.level = Level::kGood;
    line.says = absl::StrCat("training and held-out rewards agree", looks,
                             speckle.all.empty() ? ObservedText(observed) : "");
  }
  return line;
}

}  // namespace oxbow::io
