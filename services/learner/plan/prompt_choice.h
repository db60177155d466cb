// SPDX-License-Identifier: Apache-2.0
// Chooses the prompts of each step by what the run's groups have shown of them
// (core/rl/success_record.h, docs/methods/prompt_choice.md), if the run says so.
//
//   Plan        ranks all prompts by what the steps before step - S have shown
//   PlanExtra   the same by all committed steps, with another draw
//   Follow      takes up the rewards of the step's fresh samples
//
// A function of the run's seed, its committed groups and the step: a resumed run, and one of
// another number of ranks, chooses the same prompts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/rl/prompt_progress.h"
#include "core/rl/success_record.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/plan/prompt_order.h"
#include "services/learner/plan/step_rule.h"

namespace oxbow::learner {

class PromptChoice final : public StepRule {
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

  absl::Status Plan(StepDraft& draft) override;
  void PlanExtra(LearnerStep step) override;
  void See(LearnerStep step, const ReceivedGroup& received, const PlannedGroup& planned) override;
  void Follow(LearnerStep step, const StepGroups& groups, Numbers& numbers) override;
  void Save(RunState& state) const override;

  const rl::SuccessRecord& known() const { return known_; }

 private:
  void Rank(LearnerStep step, LearnerStep known_before, bool extra);

  const Options options_;
  PromptOrder& order_;
  rl::SuccessRecord known_;
  std::vector<rl::GroupOutcome> seen_;  // Since the last commit.
};

// Watches how far prompts have come (core/rl/prompt_progress.h): numbers `prompts/`, and nothing
// that changes the run.
class PromptProgressRule final : public StepRule {
 public:
  // `known`: from a checkpoint. `full_reward` as above.
  PromptProgressRule(double full_reward, rl::PromptProgress known)
      : full_reward_(full_reward), progress_(std::move(known)) {}

  void See(LearnerStep step, const ReceivedGroup& received, const PlannedGroup& planned) override;
  void Follow(LearnerStep step, const StepGroups& groups, Numbers& numbers) override;
  void Save(RunState& state) const override;

 private:
  const double full_reward_;
  rl::PromptProgress progress_;
  std::vector<std::pair<PromptId, size_t>> seen_;  // Since the last commit.
};

}  // namespace oxbow::learner
