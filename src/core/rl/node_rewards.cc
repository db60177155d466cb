// SPDX-License-Identifier: Apache-2.0
#include "core/rl/node_rewards.h"

#include <algorithm>
#include <cmath>

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

}  // namespace oxbow::rl
