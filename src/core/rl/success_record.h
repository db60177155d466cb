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
#include "core/rl/learnability.h"

namespace oxbow::rl {

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
