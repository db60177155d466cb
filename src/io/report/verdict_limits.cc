// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/statistics.h"
#include "io/report/verdict_course.h"
#include "io/report/verdict_lines.h"
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

}  // namespace

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
