// SPDX-License-Identifier: Apache-2.0
#include "core/rl/tree_training.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "core/rl/advantage.h"

namespace oxbow::rl {
namespace {

// The places of the scored samples begin .. end - 1 of a group.
std::vector<size_t> ScoredLeaves(const Group& group, const LeafValues& values, uint32_t begin,
                                 uint32_t end) {
  std::vector<size_t> places;
  for (size_t place = 0; place < values.size(); ++place) {
    const uint32_t sample = group.trajectories[place].index;
    if (values[place].has_value() && sample >= begin && sample < end) places.push_back(place);
  }
  return places;
}

double MeanOf(const std::vector<size_t>& places, const LeafValues& values) {
  double sum = 0;
  for (const size_t place : places) sum += *values[place];
  return sum / static_cast<double>(places.size());
}

struct Child {
  double reward = 0;
  double log_prob = 0;  // That of the step to it.
};

double SoftmaxMean(const std::vector<Child>& children) {
  double largest = children.front().log_prob;
  for (const Child& child : children) largest = std::max(largest, child.log_prob);
  double sum = 0;
  double weights = 0;
  for (const Child& child : children) {
    const double weight = std::exp(child.log_prob - largest);
    sum += weight * child.reward;
    weights += weight;
  }
  return sum / weights;
}

std::vector<int> StochasticSteps(const Group& group) {
  std::vector<int> steps;
  if (group.trajectories.empty()) return steps;
  const std::vector<bool>& sde = group.trajectories[0].sde;
  for (size_t i = 0; i < sde.size(); ++i) {
    if (sde[i]) steps.push_back(static_cast<int>(i));
  }
  return steps;
}

// Facts of a group's trees in a learner step.
struct Judged {
  LeafValues values;                          // The leaves'.
  std::vector<bool> kept;                     // Leaves that train.
  std::vector<int> steps;                     // Stochastic ones that are not pruned.
  std::map<int, NodeLeaves> nodes;            // By step.
  std::map<int, GroupAdvantages> advantages;  // By step; in the order of its nodes.
};

Judged Judge(const TrainerOptions& options, LearnerStep learner_step, const Group& group) {
  const flow::SplitTree& tree = options.sampling.splits;
  Judged judged;
  judged.values = ValuesOf(group, ValueIn(options, group));
  judged.kept = KeptLeaves(options.branch, tree, group, judged.values);
  const std::vector<int> stochastic = StochasticSteps(group);
  const std::vector<int> pruned = PrunedSteps(options.branch, tree, stochastic, learner_step);
  for (const int step : stochastic) {
    if (std::find(pruned.begin(), pruned.end(), step) != pruned.end()) continue;
    judged.steps.push_back(step);
    judged.nodes[step] = ScoredNodesAfter(tree, group, judged.values, step);
  }
  return judged;
}

// The rewards of every group's nodes after `step`, fused from what the value of the group says of
// leaves.
GroupRewards NodeRewards(const TrainerOptions& options, const std::vector<Group>& groups,
                         const std::vector<Judged>& judged, int step,
                         const std::function<RewardValue(const Group&)>& value_in) {
  GroupRewards table;
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& row = table.emplace_back();
    const auto nodes = judged[g].nodes.find(step);
    if (nodes == judged[g].nodes.end()) continue;
    const LeafValues values = ValuesOf(groups[g], value_in(groups[g]));
    for (const auto& [first, leaves] : nodes->second) {
      row.push_back(FusedReward(options.branch.fusion, options.sampling.splits, groups[g], values,
                                first, step));
    }
  }
  return table;
}

void JudgeStep(const TrainerOptions& options, const std::vector<Group>& groups, int step,
               std::vector<Judged>& judged) {
  std::vector<WeightedRewards> terms;
  for (const WeightedValue& single : SingleValues(options)) {
    terms.push_back({.weight = single.weight,
                     .rewards = NodeRewards(options, groups, judged, step,
                                            [&](const Group&) { return single.value; })});
  }
  const auto total = [&](const Group& group) { return ValueIn(options, group); };
  std::vector<GroupAdvantages> advantages =
      MixAdvantages(options.reward_mix, NodeRewards(options, groups, judged, step, total), terms,
                    options.advantage);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (judged[g].nodes.contains(step)) judged[g].advantages[step] = std::move(advantages[g]);
  }
}

std::vector<Judged> JudgeAll(const TrainerOptions& options, LearnerStep step,
                             const std::vector<Group>& groups) {
  std::vector<Judged> judged;
  std::set<int> steps;
  for (const Group& group : groups) {
    judged.push_back(Judge(options, step, group));
    steps.insert(judged.back().steps.begin(), judged.back().steps.end());
  }
  for (const int one : steps) JudgeStep(options, groups, one, judged);
  return judged;
}

// The place of the sample that carries an edge: the first kept leaf below it; nothing: pruned.
std::optional<size_t> CarrierOf(const Judged& judged, const std::vector<size_t>& leaves) {
  for (const size_t place : leaves) {
    if (judged.kept[place]) return place;
  }
  return std::nullopt;
}

// The advantage of a sample's edge at a step; nothing: another sample carries it, or none.
std::optional<double> CarriedAdvantage(const flow::SplitTree& tree, const Judged& judged,
                                       const Group& group, size_t place, int step, bool unmasked) {
  const auto nodes = judged.nodes.find(step);
  if (nodes == judged.nodes.end()) return std::nullopt;
  const GroupAdvantages& advantages = judged.advantages.at(step);
  if (!advantages.has_variance && !unmasked) return std::nullopt;
  const auto node = nodes->second.find(tree.FirstLeaf(group.trajectories[place].index, step));
  if (node == nodes->second.end() || CarrierOf(judged, node->second) != place) return std::nullopt;
  const auto order = std::distance(nodes->second.begin(), node);
  return advantages.advantages[static_cast<size_t>(order)];
}

void KeepCarried(const TrainerOptions& options, const Group& group, const Judged& judged,
                 PlannedTrajectory& planned) {
  const bool unmasked = options.zero_variance == ZeroVariance::kUnmasked;
  std::vector<PlannedRow> rows;
  for (PlannedRow& row : planned.rows) {
    const std::optional<double> advantage = CarriedAdvantage(
        options.sampling.splits, judged, group, planned.trajectory, row.step, unmasked);
    if (!advantage.has_value()) continue;
    row.baseline = planned.advantage - *advantage;
    rows.push_back(row);
  }
  planned.rows = std::move(rows);
}

// The edges of a group that the mean is over.
int64_t EdgesOf(ZeroVariance zero_variance, const Judged& judged) {
  int64_t edges = 0;
  for (const auto& [step, nodes] : judged.nodes) {
    const bool counts =
        zero_variance != ZeroVariance::kMeanOverKept || judged.advantages.at(step).has_variance;
    if (!counts) continue;
    for (const auto& [first, leaves] : nodes) edges += CarrierOf(judged, leaves).has_value();
  }
  return edges;
}

// Best first; the earlier one of equals.
std::vector<size_t> Ranked(std::vector<size_t> places, const LeafValues& values) {
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return *values[a] > *values[b]; });
  return places;
}

std::vector<size_t> ExtremesOf(const std::vector<size_t>& ranked, double share) {
  const auto count = static_cast<double>(ranked.size());
  const auto kept =
      std::min(ranked.size(), std::max<size_t>(2, static_cast<size_t>(count * share)));
  std::vector<size_t> chosen(ranked.begin(),
                             ranked.begin() + static_cast<std::ptrdiff_t>(kept / 2));
  chosen.insert(chosen.end(), ranked.end() - static_cast<std::ptrdiff_t>(kept - kept / 2),
                ranked.end());
  return chosen;
}

}  // namespace

LeafValues ValuesOf(const Group& group, const std::function<double(const Trajectory&)>& value) {
  LeafValues values;
  for (const Trajectory& trajectory : group.trajectories) {
    values.push_back(trajectory.reward_failed ? std::nullopt
                                              : std::optional<double>(value(trajectory)));
  }
  return values;
}

NodeLeaves ScoredNodesAfter(const flow::SplitTree& tree, const Group& group,
                            const LeafValues& values, int step) {
  NodeLeaves nodes;
  for (size_t place = 0; place < values.size(); ++place) {
    if (!values[place].has_value()) continue;
    nodes[tree.FirstLeaf(group.trajectories[place].index, step)].push_back(place);
  }
  return nodes;
}

std::optional<double> FusedReward(BranchFusion fusion, const flow::SplitTree& tree,
                                  const Group& group, const LeafValues& values, uint32_t first,
                                  int step) {
  const std::vector<size_t> leaves =
      ScoredLeaves(group, values, first, first + tree.LeavesAfter(step));
  if (leaves.empty()) return std::nullopt;
  const auto split = std::upper_bound(tree.steps.begin(), tree.steps.end(), step);
  if (fusion == BranchFusion::kMean || split == tree.steps.end()) return MeanOf(leaves, values);
  std::vector<Child> children;
  const uint32_t stride = tree.LeavesAfter(*split);
  for (uint32_t child = first; child < first + tree.LeavesAfter(step); child += stride) {
    const std::optional<double> reward = FusedReward(fusion, tree, group, values, child, *split);
    if (!reward.has_value()) continue;
    const size_t place = ScoredLeaves(group, values, child, child + stride).front();
    children.push_back({*reward, group.trajectories[place].log_prob[static_cast<size_t>(*split)]});
  }
  return SoftmaxMean(children);
}

void TrainTrees(const TrainerOptions& options, LearnerStep step, const std::vector<Group>& groups,
                TrainingPlan& plan) {
  const std::vector<Judged> judged = JudgeAll(options, step, groups);
  for (PlannedTrajectory& planned : plan.trajectories) {
    KeepCarried(options, groups[planned.group], judged[planned.group], planned);
  }
  std::erase_if(plan.trajectories,
                [](const PlannedTrajectory& planned) { return planned.rows.empty(); });
  plan.edges_counted = 0;
  plan.samples_counted = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool counts =
        plan.groups[g].has_variance || options.zero_variance != ZeroVariance::kMeanOverKept;
    if (!counts) continue;
    *plan.edges_counted += EdgesOf(options.zero_variance, judged[g]);
    plan.samples_counted += std::count(judged[g].kept.begin(), judged[g].kept.end(), true);
  }
}

std::vector<int> PrunedSteps(const BranchOptions& branch, const flow::SplitTree& tree,
                             const std::vector<int>& stochastic, LearnerStep step) {
  std::vector<int> pruned = branch.pruned_steps;
  if (pruned.empty() || branch.pruned_hold == 0 || tree.empty()) return pruned;
  const auto place = [&](int one) {
    return std::lower_bound(stochastic.begin(), stochastic.end(), one) - stochastic.begin();
  };
  const auto room = std::max<int64_t>(0, place(pruned.front()) - place(tree.steps.back()));
  const auto moves = step.value / static_cast<uint64_t>(branch.pruned_hold);
  const auto shift = static_cast<int64_t>(std::min<uint64_t>(moves, static_cast<uint64_t>(room)));
  if (shift == 0) return pruned;
  for (int& one : pruned) one = stochastic[static_cast<size_t>(place(one) - shift)];
  return pruned;
}

std::vector<bool> KeptLeaves(const BranchOptions& branch, const flow::SplitTree& tree,
                             const Group& group, const LeafValues& values) {
  std::vector<bool> kept(values.size(), false);
  std::vector<size_t> scored;
  for (size_t place = 0; place < values.size(); ++place) {
    if (values[place].has_value()) scored.push_back(place);
  }
  std::vector<size_t> chosen = scored;
  if (branch.pruning == BranchPruning::kExtremes) {
    chosen = ExtremesOf(Ranked(scored, values), branch.kept);
  } else if (branch.pruning == BranchPruning::kBest) {
    chosen.clear();
    for (const auto& [first, leaves] :
         ScoredNodesAfter(tree, group, values, tree.steps.back() - 1)) {
      chosen.push_back(Ranked(leaves, values).front());
    }
  }
  for (const size_t place : chosen) kept[place] = true;
  return kept;
}

}  // namespace oxbow::rl
