// SPDX-License-Identifier: Apache-2.0
// How groups that are trees train: BranchGRPO, arXiv:2509.06040.
//
// Nodes, edges and splits are those of flow/split_tree.h, the reward R of a node is
// FusedReward. The advantage of an edge of step t is that of its node among the group's nodes of
// x_{t+1}:
//
//   A(n) = (R(n) - mean_t) / divisor(std_t), clipped          (advantage.h)
//
// and the loss of a step is the mean over the edges that are trained. Every edge is trained once:
// its row is that of the first scored sample below its node, whose latents and log-prob all samples
// of the node have in common.
//
// Pruned leaves and pruned steps train nothing, but count in rewards and
// advantages: an edge is trained if a leaf below it is kept and its step is not pruned.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "core/flow/split_tree.h"
#include "core/rl/experience.h"
#include "core/rl/options.h"
#include "core/rl/training_plan.h"

namespace oxbow::rl {

// The rewards of the nodes of a group's trees (flow/split_tree.h), from those of their leaves.
//
//   mean      R(n) = the mean of the scored leaves below n
//   softmax   R(n) = sum over its children c of softmax_c(lp_c) R(c) at every split below it, with
//             lp_c the log-prob of the step that leads to c

// A number of each sample of a group, by its place; nothing: its reward failed.
using LeafValues = std::vector<std::optional<double>>;

LeafValues ValuesOf(const Group& group, const std::function<double(const Trajectory&)>& value);

// Nodes by the first sample below them, with the places of the scored ones.
using NodeLeaves = std::map<uint32_t, std::vector<size_t>>;

// The nodes of x_{step + 1} below which a sample is scored.
NodeLeaves ScoredNodesAfter(const flow::SplitTree& tree, const Group& group,
                            const LeafValues& values, int step);

// The reward of the node of x_{step + 1} that begins with sample `first`, from its leaves' values;
// nothing where none of them is scored.
std::optional<double> FusedReward(BranchFusion fusion, const flow::SplitTree& tree,
                                  const Group& group, const LeafValues& values, uint32_t first,
                                  int step);

// Makes the rows of a plan those of edges: drops rows of shared nodes but the first, gives rows the
// advantages of their nodes, and counts the edges. Requires fresh samples in groups of trees.
void TrainTrees(const TrainerOptions& options, LearnerStep step, const std::vector<Group>& groups,
                TrainingPlan& plan);

// The steps that train nothing in a learner step, rising: `pruned_steps`, moved towards noise by
// one of the `stochastic` ones every `pruned_hold` learner steps until the first of them is the
// last split. `stochastic` rises and holds the splits and the pruned steps.
std::vector<int> PrunedSteps(const BranchOptions& branch, const flow::SplitTree& tree,
                             const std::vector<int>& stochastic, LearnerStep step);

// The kept leaves among a group's trajectories, by their values; nothing: not scored.
std::vector<bool> KeptLeaves(const BranchOptions& branch, const flow::SplitTree& tree,
                             const Group& group, const LeafValues& values);

}  // namespace oxbow::rl
