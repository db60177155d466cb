// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/prompt_choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "metrics/step_metrics.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"

namespace oxbow::learner {
namespace {

LearnerStep Earlier(LearnerStep step, uint64_t steps) {
  return LearnerStep(step.value - std::min(step.value, steps));
}

// A group shows what its fresh samples with a reward have shown.
std::vector<double> RewardsShown(const ReceivedGroup& received) {
  std::vector<double> rewards;
  for (const v1::Trajectory& sample : received.group.trajectories()) {
    if (!sample.replayed() && !sample.reward_failed()) rewards.push_back(sample.reward());
  }
  return rewards;
}

}  // namespace

absl::Status PromptChoice::Plan(StepDraft& draft) {
  Rank(draft.step, Earlier(draft.step, options_.staleness_max), /*extra=*/false);
  return absl::OkStatus();
}

void PromptChoice::PlanExtra(LearnerStep step) { Rank(step, step, /*extra=*/true); }

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

void PromptChoice::See(LearnerStep step, const ReceivedGroup& received, const PlannedGroup&) {
  const std::vector<double> rewards = RewardsShown(received);
  if (!options_.learnable || rewards.empty()) return;
  seen_.push_back(
      rl::OutcomeOf(step, PromptId(received.group.prompt().id()), rewards, options_.full_reward));
}

void PromptChoice::Follow(LearnerStep step, const StepGroups&, Numbers&) {
  known_.Add(std::exchange(seen_, {}));
  known_.Settle(Earlier(LearnerStep(step.value + 1), options_.staleness_max));
}

void PromptChoice::Save(RunState& state) const { state.known = known_; }

void PromptProgressRule::See(LearnerStep, const ReceivedGroup& received, const PlannedGroup&) {
  const std::vector<double> rewards = RewardsShown(received);
  if (rewards.empty()) return;
  seen_.emplace_back(received.group.prompt().id(), rl::LevelOf(rewards, full_reward_));
}

void PromptProgressRule::Follow(LearnerStep, const StepGroups&, Numbers& numbers) {
  for (const auto& [prompt, level] : std::exchange(seen_, {})) progress_.See(prompt, level);
  numbers[metric::kPromptsSeen] = static_cast<double>(progress_.prompts().size());
  if (const auto share = progress_.SolvedShare()) numbers[metric::kPromptsSolvedShare] = *share;
  const rl::PromptProgress::Migration counts = progress_.Counts();
  for (size_t latest = 0; latest < rl::kPromptLevels; ++latest) {
    double& now = numbers[metric::kPromptsLevelN.Of(absl::StrCat(latest))];
    now = 0;
    for (size_t first = 0; first < rl::kPromptLevels; ++first) {
      const auto count = static_cast<double>(counts[first][latest]);
      now += count;
      if (count > 0) numbers[metric::kPromptsMovedAB.Of(absl::StrCat(first, "_", latest))] = count;
    }
  }
}

void PromptProgressRule::Save(RunState& state) const { state.progress = progress_; }

}  // namespace oxbow::learner
