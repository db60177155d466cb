// SPDX-License-Identifier: Apache-2.0
#include "io/report/verdict.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/first_part.h"
#include "base/statistics.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict_course.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

// Sentences stand in a column of their own, behind topic and level.
constexpr size_t kSentencesAt = 23;

}  // namespace

const char* LevelWord(Level level) {
  static constexpr const char* kWords[] = {"not known", "good", "watch", "bad"};
  return kWords[static_cast<int>(level)];
}

const History& Comparable(const History& history, const RunFacts& facts, History& rest) {
  if (facts.same_since == 0) return history;
  rest = history.Without("eval/", static_cast<double>(facts.same_since));
  return rest;
}

Verdict VerdictOf(const History& whole, const RunFacts& facts) {
  History rest;
  const History& history = Comparable(whole, facts, rest);
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

VerdictLine Diverse(const History& history) {
  VerdictLine line{"diverse"};
  const Course rare(history.Column(metric::kEvalMinorityShare));
  const std::vector<double> before = Early(history, metric::kTrainGroupDistanceMean, 0.1);
  const std::vector<double> after = Late(history, metric::kTrainGroupDistanceMean, 0.1);
  const bool apart = !before.empty() && !after.empty() && history.last_step() >= 5;
  std::vector<std::string> seen;
  if (rare.all.size() > 1) {
    line.level = Level::kGood;
    seen.push_back(absl::StrCat("the rarer layout's share ", Change(rare)));
    if (rare.first.value >= 0.1 && rare.mean < 0.5 * rare.first.value) {
      line.level = rare.mean < 0.05 ? Level::kBad : Level::kWatch;
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
  line.says = absl::StrJoin(seen, ", ");
  if (TooEarly(history)) {
    line.level = Level::kUnknown;
    line.says = absl::StrCat(TooEarlyText(history), seen.empty() ? "" : ": ", line.says);
    return line;
  }
  if (seen.empty()) line.says = "not measured in this run";
  if (line.level == Level::kBad) line.says = absl::StrCat("mode collapse: ", line.says);
  if (line.level >= Level::kWatch) {
    line.advice =
        "raise method.diversity.weight, set method.advantage_std: none, lower "
        "optimizer.learning_rate";
  }
  return line;
}

}  // namespace oxbow::io
