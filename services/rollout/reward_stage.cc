#include "services/rollout/reward_stage.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "run/rewards.h"

namespace oxbow::rollout {

absl::Status ApplyScores(const v1::RewardConfig& config,
                         const std::vector<absl::StatusOr<reward::Scores>>& scores,
                         std::vector<rl::Trajectory>& samples) {
  OXBOW_CHECK(scores.size() == samples.size()) << scores.size() << " scores for " << samples.size();
  bool any_failed = false;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (scores[i].ok()) {
      samples[i].rewards = *scores[i];
      samples[i].reward = run::WeightedReward(config, *scores[i]);
      continue;
    }
    if (config.on_failure() == v1::ON_REWARD_FAILURE_FAIL) {
      return Annotate(scores[i].status(), absl::StrCat("reward of sample ", samples[i].index));
    }
    samples[i].reward_failed = true;
    any_failed = true;
  }
  if (any_failed && config.on_failure() == v1::ON_REWARD_FAILURE_DROP_GROUP) {
    for (rl::Trajectory& sample : samples) sample.reward_failed = true;
  }
  return absl::OkStatus();
}

}  // namespace oxbow::rollout
