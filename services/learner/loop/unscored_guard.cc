// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/unscored_guard.h"

#include "absl/strings/str_cat.h"
#include "services/learner/coordinator/group_check.h"

namespace oxbow::learner {

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

}  // namespace oxbow::learner
