// SPDX-License-Identifier: Apache-2.0
#include "core/rl/reward_values.h"

#include <optional>

namespace oxbow::rl {
namespace {

double RewardOf(const TrainerOptions& options, const Trajectory& trajectory) {
  return trajectory.replayed && options.stored_rewards ? trajectory.stored_reward
                                                       : trajectory.reward;
}

bool RewardsDiffer(const TrainerOptions& options, const Group& group) {
  std::optional<double> first;
  for (const Trajectory& trajectory : group.trajectories) {
    if (trajectory.reward_failed) continue;
    const double reward = RewardOf(options, trajectory);
    if (first.has_value() && reward != *first) return true;
    first = reward;
  }
  return false;
}

}  // namespace

RewardValue ValueIn(const TrainerOptions& options, const Group& group) {
  const double weight = RewardsDiffer(options, group) ? options.diversity_weight : 0;
  return [&options, weight](const Trajectory& trajectory) {
    return RewardOf(options, trajectory) * (1 + weight * (1 - trajectory.duplicate_share));
  };
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
