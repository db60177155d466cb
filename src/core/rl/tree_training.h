// SPDX-License-Identifier: Apache-2.0
// How groups that are trees train: BranchGRPO, arXiv:2509.06040.
//
// Nodes, edges and splits are those of flow/split_tree.h, the reward R of a node is that of
// node_rewards.h. The advantage of an edge of step t is that of its node among the group's nodes of
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

#include <vector>

#include "base/ids.h"
#include "core/rl/experience.h"
#include "core/rl/node_rewards.h"
#include "core/rl/options.h"
#include "core/rl/training_plan.h"

namespace oxbow::rl {

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
