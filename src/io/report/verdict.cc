// SPDX-License-Identifier: Apache-2.0
#include "io/report/verdict.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/first_part.h"
#include "io/report/verdict_lines.h"

namespace oxbow::io {
namespace {

// Sentences stand in a column of their own, behind topic and level.
constexpr size_t kSentencesAt = 23;

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

}  // namespace oxbow::io
