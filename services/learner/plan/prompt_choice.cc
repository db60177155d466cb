// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/prompt_choice.h"

#include <algorithm>

namespace oxbow::learner {
namespace {

LearnerStep Earlier(LearnerStep step, uint64_t steps) {
  return LearnerStep(step.value - std::min(step.value, steps));
}

}  // namespace

void PromptChoice::BeforePlan(LearnerStep step) {
  Rank(step, Earlier(step, options_.staleness_max), /*extra=*/false);
}

void PromptChoice::BeforeExtra(LearnerStep step) { Rank(step, step, /*extra=*/true); }

void PromptChoice::Rank(LearnerStep step, LearnerStep known_before, bool extra) {
  if (!options_.learnable) return;
  const rl::SuccessRecord::Evidence known = known_.KnownBefore(known_before);
  std::vector<rl::PromptEvidence> prompts;
  prompts.reserve(order_.size());
  for (const v1::Prompt& prompt : order_.prompts()) {
    const auto found = known.find(PromptId(prompt.id()));
    prompts.push_back({.prompt = PromptId(prompt.id()),
                       .evidence = found == known.end() ? rl::SuccessEvidence() : found->second});
  }
  order_.TakeBy(rl::RankByLearnability(prompts, options_.run_seed, step, extra));
}

std::optional<rl::GroupOutcome> PromptChoice::OutcomeOf(LearnerStep step,
                                                        const v1::Group& group) const {
  std::vector<double> rewards;
  for (const v1::Trajectory& sample : group.trajectories()) {
    if (!sample.replayed() && !sample.reward_failed()) rewards.push_back(sample.reward());
  }
  if (!options_.learnable || rewards.empty()) return std::nullopt;
  return rl::OutcomeOf(step, PromptId(group.prompt().id()), rewards, options_.full_reward);
}

void PromptChoice::Commit(LearnerStep step, const std::vector<rl::GroupOutcome>& outcomes) {
  known_.Add(outcomes);
  known_.Settle(Earlier(LearnerStep(step.value + 1), options_.staleness_max));
}

}  // namespace oxbow::learner
