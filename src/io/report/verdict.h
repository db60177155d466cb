// SPDX-License-Identifier: Apache-2.0
// The verdict on a run in five lines: does it learn, honestly, keeping its variety, steadily, and
// what limits its speed. A pure function of the run's metrics, so that the page, the terminal and
// the doctor say the same.
//
// Rewards have any scale. A change of the held-out reward counts where it is larger than three
// standard errors of an evaluation: the spread of rewards among samples over the root of the
// number of pictures. It is the mean of the last three that is judged; lines name the first, the
// last and the best evaluation, as tables and pages do. Where an alert has a limit for the same
// thing, the verdict has that limit (metrics/alert_limits.h).
#pragma once

#include <array>
#include <string>

#include "io/metrics_file.h"
#include "io/report/run_facts.h"

namespace oxbow::io {

enum class Level { kUnknown, kGood, kWatch, kBad };

// "not known", "good", "watch", "bad".
const char* LevelWord(Level level);

struct VerdictLine {
  const char* topic = "";  // "learning", "honest", "diverse", "stable", "limited by"
  Level level = Level::kUnknown;
  std::string says;    // The finding, with its numbers.
  std::string advice;  // The remedy: a place to look or a change; empty if nothing is wrong.
};

using Verdict = std::array<VerdictLine, 5>;

// The run without the evaluations that must not be compared with its last one, those up to
// RunFacts::same_since: `history` itself, or what it puts into `rest`.
const History& Comparable(const History& history, const RunFacts& facts, History& rest);

// Every topic has a line for every run, also for one without metrics: it then says what is missing.
Verdict VerdictOf(const History& history, const RunFacts& facts);

// Five lines for a terminal:
//
//   learning    good   held-out reward 0.573 -> 0.977 of 1, best 0.980 at step 90
//   diverse     bad    one layout is left: the rarer one's share 0.45 -> 0.01
//                      -> raise method.diversity.weight, lower the learning rate
//
// Sentences are broken between words to fit so many columns; with 0 they are not.
std::string VerdictText(const Verdict& verdict, size_t columns = 0);

}  // namespace oxbow::io
