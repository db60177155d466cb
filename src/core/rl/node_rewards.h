// SPDX-License-Identifier: Apache-2.0
// The rewards of the nodes of a group's trees (flow/split_tree.h), from those of their leaves.
//
//   mean      R(n) = the mean of the scored leaves below n
//   softmax   R(n) = sum over its children c of softmax_c(lp_c) R(c) at every split below it, with
//             lp_c the log-prob of the step that leads to c
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/flow/split_tree.h"
#include "core/rl/experience.h"
#include "core/rl/options.h"

namespace oxbow::rl {

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

}  // namespace oxbow::rl
