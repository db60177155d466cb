// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/score_watch.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/learner/coordinator/group_check.h"

namespace oxbow::learner {
namespace {

// As a share of the range's width: servers compute in single precision.
constexpr double kSlack = 1e-4;

bool Leaves(const reward::RewardFacts& facts, double value) {
  const double slack = kSlack * (facts.value_max - facts.value_min);
  return value < facts.value_min - slack || value > facts.value_max + slack;
}

}  // namespace

absl::Status UnscoredGuard::Check(LearnerStep step, const std::vector<ReceivedGroup>& groups,
                                  const std::string& reason, uint64_t lost) {
  uint64_t samples = 0;
  uint64_t unscored = 0;
  for (const ReceivedGroup& received : groups) {
    samples += static_cast<uint64_t>(received.group.trajectories_size());
    unscored += UnscoredIn(received.group);
  }
  samples -= lost;
  unscored -= lost;
  if (static_cast<double>(unscored) <= kShareMax * static_cast<double>(samples)) {
    groups_ = 0;
    return absl::OkStatus();
  }
  groups_ += groups.size();
  if (groups_ < kGroupsMin) return absl::OkStatus();
  tripped_ = true;
  return absl::FailedPreconditionError(absl::StrCat(
      "images cannot be scored: ", unscored, " of ", samples, " samples of step ", step.value,
      " have no score; correct the reward or its prompts, then go on with --resume; the reward "
      "server says: ",
      reason.empty() ? "(its reason was lost with a worker's stream)" : reason));
}

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
