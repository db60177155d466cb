// SPDX-License-Identifier: Apache-2.0
#include "core/flow/split_tree.h"

#include <map>
#include <utility>

namespace oxbow::flow {

uint32_t SplitTree::LeavesAfter(int step) const {
  uint32_t leaves = 1;
  for (const int split : steps) {
    if (split > step) leaves *= width;
  }
  return leaves;
}

SharedRows NodesAfter(const SplitTree& tree, const std::vector<Member>& members, int step) {
  SharedRows shared;
  std::map<std::pair<uint64_t, uint32_t>, int64_t> places;
  for (size_t row = 0; row < members.size(); ++row) {
    const auto [found, is_new] =
        places.try_emplace({members[row].group, tree.FirstLeaf(members[row].sample, step)},
                           static_cast<int64_t>(shared.first.size()));
    if (is_new) shared.first.push_back(static_cast<int64_t>(row));
    shared.node.push_back(found->second);
  }
  return shared;
}

int64_t NodesOfGroup(const SplitTree& tree, int64_t group_size, int steps) {
  int64_t nodes = 0;
  for (int step = 0; step < steps; ++step) {
    const int64_t leaves = tree.LeavesAfter(step - 1);
    nodes += (group_size + leaves - 1) / leaves;
  }
  return nodes;
}

}  // namespace oxbow::flow
