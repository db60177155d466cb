// SPDX-License-Identifier: Apache-2.0
#include "core/rl/reward_values.h"

namespace oxbow::rl {

double Valued(const TrainerOptions& options, const Trajectory& trajectory) {
  const double reward =
      trajectory.replayed && options.stored_rewards ? trajectory.stored_reward : trajectory.reward;
  return reward * (1 + options.diversity_weight * (1 - trajectory.duplicate_share));
}

std::vector<WeightedValue> SingleValues(const TrainerOptions& options) {
  std::vector<WeightedValue> values;
  if (options.reward_mix == RewardMix::kSum) return values;
  for (const auto& [name, weight] : options.reward_weights) {
    values.push_back({.weight = weight, .value = [name = name](const Trajectory& trajectory) {
                        const auto found = trajectory.rewards.find(name);
                        return found == trajectory.rewards.end() ? 0. : found->second;
                      }});
  }
  return values;
}

}  // namespace oxbow::rl
