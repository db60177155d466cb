// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/reward_stage.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "run/rewards.h"

namespace oxbow::rollout {

absl::StatusOr<Unscored> ApplyScores(const v1::RewardConfig& config, bool drops,
                                     const std::vector<absl::StatusOr<reward::Scores>>& scores,
                                     std::vector<rl::Trajectory>& samples) {
  OXBOW_CHECK(scores.size() == samples.size()) << scores.size() << " scores for " << samples.size();
  for (const absl::StatusOr<reward::Scores>& score : scores) {
    if (!score.ok() && !reward::IsUnscorable(score.status())) return score.status();
  }
  Unscored unscored;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (scores[i].ok()) {
      samples[i].rewards = *scores[i];
      samples[i].reward = run::WeightedReward(config, *scores[i]);
      for (const std::string& name : config.observed()) {
        if (!scores[i]->contains(name)) ++unscored.observed[name];
      }
      continue;
    }
    unscored.reason = scores[i].status();
    const bool fails = config.on_failure() == v1::ON_REWARD_FAILURE_FAIL && !drops;
    if (fails && !reward::IsFinal(unscored.reason)) {
      return Annotate(unscored.reason, absl::StrCat("reward of sample ", samples[i].index));
    }
    samples[i].reward_failed = true;
    ++unscored.samples;
  }
  if (unscored.samples > 0 && config.on_failure() == v1::ON_REWARD_FAILURE_DROP_GROUP) {
    for (rl::Trajectory& sample : samples) sample.reward_failed = true;
    unscored.samples = static_cast<uint32_t>(samples.size());
  }
  return unscored;
}

}  // namespace oxbow::rollout
