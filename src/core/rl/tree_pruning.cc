// SPDX-License-Identifier: Apache-2.0
#include "core/rl/tree_pruning.h"

#include <algorithm>

namespace oxbow::rl {
namespace {

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

std::vector<int> PrunedSteps(const BranchOptions& branch, const flow::SplitTree& tree,
                             LearnerStep step) {
  std::vector<int> pruned = branch.pruned_steps;
  if (pruned.empty() || branch.pruned_hold == 0 || tree.empty()) return pruned;
  const int room = std::max(0, pruned.front() - tree.steps.back());
  const auto moves = step.value / static_cast<uint64_t>(branch.pruned_hold);
  const int shift = static_cast<int>(std::min<uint64_t>(moves, static_cast<uint64_t>(room)));
  for (int& one : pruned) one -= shift;
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
