// SPDX-License-Identifier: Apache-2.0
// Chooses the prompts of each step by what the run's groups have shown of them
// (core/rl/success_record.h, docs/methods/prompt_choice.md), if the run says so.
//
//   before a plan     ranks all prompts by what the steps before step - S have shown
//   before extra      the same by all committed steps, with another draw
//   after a commit    takes up the rewards of the step's fresh samples
//
// A function of the run's seed, its committed groups and the step: a resumed run, and one of
// another number of ranks, chooses the same prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/rl/success_record.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/plan/prompt_order.h"

namespace oxbow::learner {

class PromptChoice {
 public:
  struct Options {
    bool learnable = false;  // False: prompts keep their shuffled order, and nothing is taken up.
    uint64_t run_seed = 0;
    uint64_t staleness_max = 0;  // S
    double full_reward = 1;      // A sample's that is right in full; above 0.
  };

  // `known`: from a checkpoint. `order` outlives this.
  PromptChoice(const Options& options, PromptOrder& order, rl::SuccessRecord known)
      : options_(options), order_(order), known_(std::move(known)) {}

  // Ranks the prompts for the plan of `step`.
  void BeforePlan(LearnerStep step);
  // Ranks them for the extra groups of `step`, the next one to be committed.
  void BeforeExtra(LearnerStep step);

  // The outcome of a group by its fresh samples; nothing if no sample is fresh and has a reward,
  // or if nobody wants to know.
  std::optional<rl::GroupOutcome> OutcomeOf(LearnerStep step, const v1::Group& group) const;
  // Takes up what the groups of a committed step have shown.
  void Commit(LearnerStep step, const std::vector<rl::GroupOutcome>& outcomes);

  const rl::SuccessRecord& known() const { return known_; }

 private:
  void Rank(LearnerStep step, LearnerStep known_before, bool extra);

  const Options options_;
  PromptOrder& order_;
  rl::SuccessRecord known_;
};

}  // namespace oxbow::learner
