// SPDX-License-Identifier: Apache-2.0
#include "core/rl/tree_pruning.h"

#include <algorithm>
#include <cstdint>

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
