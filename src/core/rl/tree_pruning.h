// SPDX-License-Identifier: Apache-2.0
// Parts of a group's trees that train nothing: leaves (width pruning) and steps (depth pruning).
#pragma once

#include <vector>

#include "base/ids.h"
#include "core/rl/node_rewards.h"
#include "core/rl/options.h"

namespace oxbow::rl {

// The steps that train nothing in a learner step, rising: `pruned_steps`, moved towards noise by
// one of the `stochastic` ones every `pruned_hold` learner steps until the first of them is the
// last split. `stochastic` rises and holds the splits and the pruned steps.
std::vector<int> PrunedSteps(const BranchOptions& branch, const flow::SplitTree& tree,
                             const std::vector<int>& stochastic, LearnerStep step);

// The kept leaves among a group's trajectories, by their values; nothing: not scored.
std::vector<bool> KeptLeaves(const BranchOptions& branch, const flow::SplitTree& tree,
                             const Group& group, const LeafValues& values);

}  // namespace oxbow::rl
