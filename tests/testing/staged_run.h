// SPDX-License-Identifier: Apache-2.0
// Staged runs for tests of the verdict: metrics as a learner writes them, changed step by step.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <ostream>
#include <string>

#include "io/metrics_file.h"
#include "io/report/verdict.h"

namespace oxbow::io {

inline void PrintTo(const VerdictLine& line, std::ostream* out) {
  *out << line.topic << " " << LevelWord(line.level) << ": " << line.says;
}

using Numbers = std::map<std::string, double>;

inline constexpr int kSteps = 80;

// A step of a run in good health: it learns from .57 to .97 in `kSteps` steps.
inline Numbers HealthyStep(int step) {
  const double t = static_cast<double>(step) / kSteps, wave = std::sin(1.7 * step);
  const double skill = 1 - std::exp(-4 * t);
  Numbers line = {{"time/plan_s", 0.01}, {"time/log_s", 0.01}, {"time/step_s", 0.3}};
  if (step % 10 == 0) {
    line["eval/reward_mean"] = line["eval/reward_digits_ocr_mean"] = 0.57 + 0.4 * skill;
    line["eval/reward_digits_strict_mean"] = 0.2 + 0.7 * skill;
    line["eval/reward_digits_row_mean"] = 0.52;
    line["eval/minority_share"] = 0.47 + 0.02 * wave;
    line["eval/speckle_mean"] = 0.015 - 0.003 * skill;
    line["time/eval_s"] = 0.2;
  }
  if (step == 0) return line;
  line["train/reward_mean"] = 0.55 + 0.38 * skill + 0.015 * wave;
  line["train/reward_std"] = 0.28 - 0.15 * skill;
  line["train/reward_zero_std_ratio"] = 0.02 + 0.4 * skill;
  line["train/group_distance_mean"] = 0.3 - 0.06 * skill;
  line["train/samples"] = line["train/samples_trained"] = 128;
  line["train/groups_replayed"] = step > 5 ? 4 : 0;
  line["train/grad_norm"] = 0.2 + 0.05 * wave;
  line["train/loss"] = -0.01;
  line["train/clip_frac_zero_grad"] = 0.05;
  line["train/onpolicy_ratio_err"] = 0;
  line["train/onpolicy_ratio_limit"] = 0.001;
  line["time/wait_s"] = 0.08;
  line["time/update_s"] = 0.18;
  line["time/publish_s"] = 0.02;
  return line;
}

using StepChange = std::function<void(int step, Numbers& line)>;

// The verdict on a run of digits of so many steps; `facts` as of such a run.
inline Verdict Judge(const StepChange& change, int steps = kSteps,
                     const RunFacts& facts = {
                         .steps_total = kSteps, .full_reward = 1, .replays = true}) {
  History history;
  for (int step = 0; step <= steps; ++step) {
    Numbers line = HealthyStep(step);
    change(step, line);
    history.Add(*ParseMetricsLine(FormatMetricsLine(step, 0.3 * step, line)));
  }
  return VerdictOf(history, facts);
}

// The levels, one letter a topic in the order of the lines: g(ood), w(atch), b(ad), n(ot known).
inline std::string Levels(const Verdict& verdict) {
  std::string letters;
  for (const VerdictLine& line : verdict) letters += LevelWord(line.level)[0];
  return letters;
}

inline void Held(Numbers& line, double reward) {
  if (!line.contains("eval/reward_mean")) return;
  line["eval/reward_mean"] = line["eval/reward_digits_ocr_mean"] = reward;
  line["eval/reward_digits_strict_mean"] = reward * 0.9;
}

}  // namespace oxbow::io
