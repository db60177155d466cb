// SPDX-License-Identifier: Apache-2.0
// Trees of samples: the members of a group that share the first steps of their paths (BranchGRPO,
// arXiv:2509.06040).
//
// A group of G samples is a row of trees, each with `width` to the power of the number of splits
// leaves. A node is a latent that one or more samples have in common. The samples of a node are
// consecutive members of the group, and the first of them names it. At a split step a node has
// `width` children, at every other step one. The edge of a child is the step that leads to it.
//
// A node's noise is that of its first leaf. So samples share what they share by their noise alone:
// records, stores and messages are those of any other trajectory.
#pragma once

#include <cstdint>
#include <vector>

namespace oxbow::flow {

struct SplitTree {
  std::vector<int> steps;  // The split steps, rising; empty: every sample is a tree by itself.
  uint32_t width = 1;      // Children of a node at a split.

  bool empty() const { return steps.empty(); }
  uint32_t Leaves() const { return LeavesAfter(-1); }  // Leaves of a whole tree.

  // The leaves below a node that the edge of `step` leads to: a node of x_{step + 1}. -1: of x_0.
  uint32_t LeavesAfter(int step) const;

  // The first leaf of the node of x_{step + 1} that `sample` passes.
  uint32_t FirstLeaf(uint32_t sample, int step) const {
    return sample - sample % LeavesAfter(step);
  }
};

// Where trees begin the paths of some samples again: rows of one batch that have a node in common.
struct SharedRows {
  std::vector<int64_t> first;  // The first row of each node, rising.
  std::vector<int64_t> node;   // Each row's place in `first`.
};

// One member of one group.
struct Member {
  uint64_t group = 0;
  uint32_t sample = 0;
};

// The nodes of x_{step + 1} that rows of these members pass.
SharedRows NodesAfter(const SplitTree& tree, const std::vector<Member>& members, int step);

// Rows of the network that a whole group takes for steps [0, steps): one for each node of x_i.
int64_t NodesOfGroup(const SplitTree& tree, int64_t group_size, int steps);

}  // namespace oxbow::flow
