// SPDX-License-Identifier: Apache-2.0
// The phases of a learner step in words: which part of the system each of them waits for.
#pragma once

#include <string_view>

namespace oxbow::metric {

struct PhaseWords {
  std::string_view phase;   // As in `time/PHASE_s`.
  std::string_view limit;   // The part that would have to be faster.
  std::string_view doing;   // The learner's work meanwhile.
  std::string_view advice;  // Ways to make that part faster.
};

// clang-format off
inline constexpr PhaseWords kPhaseWords[] = {
    {"wait", "rollouts", "waiting for rollouts",
     "start more rollout workers, or allow older weights (off_policy.staleness_max)"},
    {"rewards", "reward servers", "waiting for rewards",
     "oxbow doctor RUN_DIR names the reward servers that do not answer: start them; where they are "
     "slow, start more of them or raise reward.timeout_seconds"},
    {"update", "learner update", "updating the policy",
     "more learner.ranks, or fewer batch.updates and trained steps"},
    {"eval", "evaluation", "evaluating", "a larger eval.every, or fewer eval.images"},
    {"publish", "publishing", "publishing weights", "a larger off_policy.publish_every"},
    {"offer", "replay buffer", "writing to the buffer", "look at the buffer's disk"},
    {"plan", "planning", "planning", "encode prompts ahead (oxbow encode)"},
    {"checkpoint", "checkpoints", "writing checkpoints", "a larger checkpoint.every"},
    {"log", "logging", "writing metrics and sheets", "look at the disk of the run's directory"},
};
// clang-format on

// The row of a phase; null for a phase that has none.
constexpr const PhaseWords* WordsOf(std::string_view phase) {
  for (const PhaseWords& words : kPhaseWords) {
    if (words.phase == phase) return &words;
  }
  return nullptr;
}

}  // namespace oxbow::metric
