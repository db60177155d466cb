// SPDX-License-Identifier: Apache-2.0
// A run's knowledge of the success of its prompts, so that a resumed run knows the same.
//
// With a staleness budget of S the plan of step k is made while steps k - S .. k - 1 are under way.
// It uses what the steps before k - S have shown, and nothing else, whenever it is made: a resumed
// run plans k again when more steps have been committed. So the outcomes of the last S steps stand
// apart until no plan can be made that must not know them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/philox.h"

namespace oxbow::rl {

// The prompts that a step learns from most: the policy succeeds on them about half of the time.
//
// A group whose rewards are all equal trains nothing. With success rate p the expected spread of a
// group of 0/1 rewards is p (1 - p), which is largest at 1/2 (DOTS, arXiv:2506.05316). Sampling
// every prompt to know p costs more than training, so p is predicted (MoPPS, arXiv:2507.04632):
//
//   evidence     s successes and f failures of a prompt's samples; both halve every
//                kEvidenceHalfLife learner steps, because the policy moves on
//   posterior    p ~ Beta(1 + s, 1 + f). Without evidence it is uniform, with mean 1/2: a prompt
//                that nobody has tried is taken to be one to learn from
//   choice       Thompson sampling: one draw of p for each prompt; nearest to 1/2 comes first
//
// Pure. A draw depends on seed, step and its prompt's id alone, so two prompts keep their order
// when others come or go.
inline constexpr double kEvidenceHalfLife = 20;  // Learner steps.

// The evidence about a prompt at a step. Both counts are sums of shares, not integers.
struct SuccessEvidence {
  double successes = 0;
  double failures = 0;
  LearnerStep step;  // At which the counts are as they are here.

  bool operator==(const SuccessEvidence&) const = default;
};

// The same knowledge at a later step; unchanged at an earlier one.
SuccessEvidence AgedTo(const SuccessEvidence& evidence, LearnerStep step);

// The success rate that a group of rewards shows, in [0, 1]; 0 of no rewards. `full` > 0 is the
// reward of a sample that is right in full.
//
// Rewards count as shares of `full`, limited to [0, 1]. With their mean m and variance v it is the
// p with p (1 - p) = v, on m's side of 1/2:
//
//   p = (1 -+ sqrt(1 - 4 v)) / 2,   - where m < 1/2
//
// For rewards 0 and 1 this is the share of successes, m. For graded ones m would be wrong: a group
// of which every sample has half a point has m = 1/2 and nothing to learn from.
double SuccessRate(std::span<const double> rewards, double full);

// A draw from Beta(a, b), both at least 1, from two gamma draws (Marsaglia and Tsang 2000).
double DrawBeta(RandomStream& random, double a, double b);

struct PromptEvidence {
  PromptId prompt;
  SuccessEvidence evidence;
};

// Places of `prompts` in the order in which `step` takes them. The ids differ. `extra`: another,
// independent draw, for the extra groups of the step.
std::vector<uint32_t> RankByLearnability(std::span<const PromptEvidence> prompts, uint64_t seed,
                                         LearnerStep step, bool extra = false);

// The result of one group of a committed step.
struct GroupOutcome {
  LearnerStep step;
  PromptId prompt;
  double successes = 0;  // They add up to the group's fresh samples with a reward.
  double failures = 0;

  bool operator==(const GroupOutcome&) const = default;
};

// The outcome of fresh samples with these rewards; SuccessRate has `full`.
GroupOutcome OutcomeOf(LearnerStep step, PromptId prompt, std::span<const double> rewards,
                       double full);

class SuccessRecord {
 public:
  using Evidence = std::map<PromptId, SuccessEvidence>;  // A prompt that is not there is unknown.

  SuccessRecord() = default;
  // From a checkpoint.
  SuccessRecord(Evidence settled, std::vector<GroupOutcome> recent)
      : settled_(std::move(settled)), recent_(std::move(recent)) {}

  // Adds outcomes of a committed step, which is not before the last one that was added.
  void Add(const std::vector<GroupOutcome>& outcomes);

  // Steps before `first` stand apart no more. What KnownBefore says of `first` or a later step
  // stays the same.
  void Settle(LearnerStep first);

  // The evidence of the steps before `step`. Requires that nothing of `step` was settled.
  Evidence KnownBefore(LearnerStep step) const;

  bool empty() const { return settled_.empty() && recent_.empty(); }
  const Evidence& settled() const { return settled_; }
  const std::vector<GroupOutcome>& recent() const { return recent_; }
  bool operator==(const SuccessRecord&) const = default;

 private:
  Evidence settled_;
  std::vector<GroupOutcome> recent_;  // By step, in the order in which they were added.
};

}  // namespace oxbow::rl
