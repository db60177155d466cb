#include "core/rl/training_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/philox.h"

namespace oxbow::rl {
namespace {

// What `value` says of every sample whose reward did not fail.
GroupRewards Table(const std::vector<Group>& groups,
                   const std::function<double(const Trajectory&)>& value) {
  GroupRewards table;
  for (const Group& group : groups) {
    auto& row = table.emplace_back();
    for (const Trajectory& trajectory : group.trajectories) {
      row.push_back(trajectory.reward_failed ? std::nullopt
                                             : std::optional<double>(value(trajectory)));
    }
  }
  return table;
}

GroupMarks Replayed(const std::vector<Group>& groups) {
  GroupMarks marks;
  for (const Group& group : groups) {
    auto& row = marks.emplace_back();
    for (const Trajectory& trajectory : group.trajectories) row.push_back(trajectory.replayed);
  }
  return marks;
}

// The reward that advantages are of.
double Valued(const TrainerOptions& options, const Trajectory& trajectory) {
  const double reward =
      trajectory.replayed && options.stored_rewards ? trajectory.stored_reward : trajectory.reward;
  return reward * (1 + options.diversity_weight * (1 - trajectory.duplicate_share));
}

std::vector<GroupAdvantages> Advantages(const TrainerOptions& options,
                                        const std::vector<Group>& groups) {
  std::vector<WeightedRewards> terms;
  if (options.reward_mix != RewardMix::kSum) {
    for (const auto& [name, weight] : options.reward_weights) {
      const auto value = [&name = name](const Trajectory& trajectory) {
        const auto found = trajectory.rewards.find(name);
        return found == trajectory.rewards.end() ? 0. : found->second;
      };
      terms.push_back({.weight = weight, .rewards = Table(groups, value)});
    }
  }
  return MixAdvantages(
      options.reward_mix, Table(groups, [&](const Trajectory& s) { return Valued(options, s); }),
      terms, options.advantage, options.replayed_in_mean ? GroupMarks() : Replayed(groups));
}

// Fisher-Yates, then equal slices: update u gets samples [u n / U, (u + 1) n / U).
void AppendUpdates(size_t count, int updates, uint64_t seed, LearnerStep step, int pass,
                   std::vector<std::vector<size_t>>& split) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  RandomStream stream(
      {.seed = seed, .group = step.value, .sample = static_cast<uint32_t>(pass), .step = kShuffle});
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[stream.NextBelow(i)]);
  const auto parts = static_cast<size_t>(updates);
  for (size_t u = 0; u < parts; ++u) {
    split.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(u * count / parts),
                       order.begin() + static_cast<std::ptrdiff_t>((u + 1) * count / parts));
  }
}

}  // namespace

std::vector<bool> HaveSignal(const TrainerOptions& options, const std::vector<Group>& groups) {
  std::vector<bool> signal;
  for (const GroupAdvantages& group : Advantages(options, groups)) {
    signal.push_back(group.has_variance);
  }
  return signal;
}

TrainingPlan PlanTraining(const TrainerOptions& options, LearnerStep step,
                          const std::vector<Group>& groups, const SamplePlanner& plan_sample) {
  TrainingPlan plan{.groups = Advantages(options, groups)};
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool signal =
        plan.groups[g].has_variance || options.zero_variance == ZeroVariance::kUnmasked;
    for (size_t s = 0; s < groups[g].trajectories.size(); ++s) {
      const Trajectory& trajectory = groups[g].trajectories[s];
      if (trajectory.reward_failed) continue;
      plan.samples_counted += signal || options.zero_variance == ZeroVariance::kMeanOverAll;
      if (!signal) continue;
      PlannedTrajectory planned = plan_sample(groups[g], trajectory);
      if (planned.rows.empty()) continue;
      planned.group = g;
      planned.trajectory = s;
      planned.advantage = plan.groups[g].advantages[s];
      plan.trajectories.push_back(std::move(planned));
    }
  }
  for (int pass = 0; pass < options.passes; ++pass) {
    AppendUpdates(plan.trajectories.size(), options.updates, options.run_seed, step, pass,
                  plan.updates);
  }
  return plan;
}

}  // namespace oxbow::rl
