// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/range_watch.h"

#include "absl/strings/str_format.h"

namespace oxbow::learner {
namespace {

// As a share of the range's width: servers compute in single precision.
constexpr double kSlack = 1e-4;

bool Leaves(const reward::RewardFacts& facts, double value) {
  const double slack = kSlack * (facts.value_max - facts.value_min);
  return value < facts.value_min - slack || value > facts.value_max + slack;
}

}  // namespace

std::vector<std::string> RangeWatch::Look(const v1::Group& group) {
  std::vector<std::string> lines;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    for (const v1::NamedValue& score : trajectory.rewards()) {
      const auto found = facts_.find(score.name());
      if (found == facts_.end() || !(found->second.value_min < found->second.value_max)) continue;
      if (!Leaves(found->second, score.value()) || !told_.insert(score.name()).second) continue;
      lines.push_back(absl::StrFormat(
          "reward %s gave %.4g, and its server declares %.4g to %.4g: correct its scores or its "
          "range",
          score.name(), score.value(), found->second.value_min, found->second.value_max));
    }
  }
  return lines;
}

}  // namespace oxbow::learner
