// SPDX-License-Identifier: Apache-2.0
#include "core/rl/training_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/philox.h"
#include "core/rl/tree_training.h"

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

constexpr double kEpsilon = 0.01;

// The value of every sample whose reward did not fail, by the function for its group.
GroupRewards Table(const std::vector<Group>& groups,
                   const std::function<RewardValue(const Group&)>& value_in) {
  GroupRewards table;
  for (const Group& group : groups) {
    const RewardValue value = value_in(group);
    auto& row = table.emplace_back();
    const bool added = group.success_rate.has_value();  // In no statistic of the step's groups.
    for (const Trajectory& trajectory : group.trajectories) {
      row.push_back(trajectory.reward_failed || added ? std::nullopt
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

std::vector<GroupAdvantages> Advantages(const TrainerOptions& options,
                                        const std::vector<Group>& groups) {
  std::vector<WeightedRewards> terms;
  for (const WeightedValue& single : SingleValues(options)) {
    terms.push_back({.weight = single.weight,
                     .rewards = Table(groups, [&](const Group&) { return single.value; })});
  }
  return MixAdvantages(
      options.reward_mix, Table(groups, [&](const Group& g) { return ValueIn(options, g); }), terms,
      options.advantage, options.replayed_in_mean ? GroupMarks() : Replayed(groups));
}

void AdviseAdded(const TrainerOptions& options, const std::vector<Group>& groups,
                 std::vector<GroupAdvantages>& advantages) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].success_rate.has_value()) continue;
    advantages[g].mean = *groups[g].success_rate;
    for (size_t s = 0; s < groups[g].trajectories.size(); ++s) {
      // The rate knows nothing of how alike the samples of a group were, so the reward must not.
      const double value =
          ImitationAdvantage(groups[g].trajectories[s].reward / options.full_reward,
                             advantages[g].mean, kAddedAdvantageMax);
      advantages[g].advantages[s] = value;
      advantages[g].has_variance |= value > 0;
    }
  }
}

// Sums of added samples' weights stay under their limit.
void ScaleAdded(const std::vector<Group>& groups, TrainingPlan& plan) {
  const auto added = [&](const PlannedTrajectory& planned) {
    return groups[planned.group].success_rate.has_value();
  };
  size_t count = 0;
  size_t fresh = 0;
  for (const PlannedTrajectory& planned : plan.trajectories) {
    count += added(planned);
    const bool replayed = groups[planned.group].trajectories[planned.trajectory].replayed;
    fresh += !replayed && plan.groups[planned.group].has_variance;
  }
  plan.added_scale = ImitationScale(kAddedWeightMax, fresh, count);
  if (plan.added_scale == 0) {
    std::erase_if(plan.trajectories, added);
    return;
  }
  for (PlannedTrajectory& planned : plan.trajectories) {
    if (added(planned)) planned.advantage *= plan.added_scale;
  }
}

// Where k samples go on from one stored head, the head is judged once, by their mean against the
// group, and each tail against its siblings. Heads of other entries are judged by themselves.
void ShareHead(const Group& group, const std::vector<PlannedTrajectory*>& branches) {
  if (branches.size() < 2) return;
  const auto count = static_cast<double>(branches.size());
  double sum = 0;
  for (const PlannedTrajectory* planned : branches) sum += planned->advantage;
  for (PlannedTrajectory* planned : branches) {
    const int head = group.trajectories[planned->trajectory].kept_steps;
    for (PlannedRow& row : planned->rows) {
      if (row.step < head) {
        row.weight /= count;
      } else {
        row.baseline = sum / count;
      }
    }
  }
}

void ShareHeads(const std::vector<Group>& groups, TrainingPlan& plan) {
  std::map<std::pair<size_t, EntryId>, std::vector<PlannedTrajectory*>> branches;
  for (PlannedTrajectory& planned : plan.trajectories) {
    const Group& group = groups[planned.group];
    const Trajectory& trajectory = group.trajectories[planned.trajectory];
    if (group.success_rate.has_value() || !trajectory.replayed) continue;
    branches[{planned.group, trajectory.entry_id}].push_back(&planned);
  }
  for (const auto& [place, of_one_head] : branches) ShareHead(groups[place.first], of_one_head);
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

// Updates over the replayed samples alone, all of them each time. Their rows count what they count
// in any other update.
void AppendExtraPasses(const TrainerOptions& options, const std::vector<Group>& groups,
                       TrainingPlan& plan) {
  std::vector<size_t> replayed;
  for (size_t s = 0; s < plan.trajectories.size(); ++s) {
    const PlannedTrajectory& planned = plan.trajectories[s];
    if (groups[planned.group].trajectories[planned.trajectory].replayed) replayed.push_back(s);
  }
  if (replayed.empty()) return;
  plan.updates.insert(plan.updates.end(), static_cast<size_t>(options.ExtraPasses()), replayed);
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

double ImitationAdvantage(double reward, double rate, double limit) {
  const double p = std::clamp(rate, 0.0, 1.0);
  return std::clamp((reward - p) / std::sqrt(p * (1 - p) + kEpsilon), 0.0, limit);
}

double ImitationScale(double weight_max, size_t fresh_with_signal, size_t added) {
  if (added == 0) return 0;
  return std::min(1.0,
                  weight_max * static_cast<double>(fresh_with_signal) / static_cast<double>(added));
}

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
  AdviseAdded(options, groups, plan.groups);
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool added = groups[g].success_rate.has_value();
    const bool signal =
        plan.groups[g].has_variance || (options.zero_variance == ZeroVariance::kUnmasked && !added);
    for (size_t s = 0; s < groups[g].trajectories.size(); ++s) {
      const Trajectory& trajectory = groups[g].trajectories[s];
      if (trajectory.reward_failed) continue;
      const bool counts = signal || options.zero_variance == ZeroVariance::kMeanOverAll;
      plan.samples_counted += counts && !added;
      if (!signal) continue;
      PlannedTrajectory planned = plan_sample(groups[g], trajectory);
      if (planned.rows.empty()) continue;
      planned.group = g;
      planned.trajectory = s;
      planned.advantage = plan.groups[g].advantages[s];
      plan.trajectories.push_back(std::move(planned));
    }
  }
  ScaleAdded(groups, plan);
  ShareHeads(groups, plan);
  if (!options.sampling.splits.empty()) TrainTrees(options, step, groups, plan);
  const bool reborn = options.IsReborn(step.value);
  for (int pass = 0; pass < (reborn ? 1 : options.passes); ++pass) {
    AppendUpdates(plan.trajectories.size(), options.updates, options.run_seed, step, pass,
                  plan.updates);
  }
  if (!reborn) AppendExtraPasses(options, groups, plan);
  return plan;
}

}  // namespace oxbow::rl
