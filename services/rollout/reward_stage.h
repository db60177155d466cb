// SPDX-License-Identifier: Apache-2.0
// Gives sampled groups their rewards, and decides what happens to images that could not be
// scored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/rl/experience.h"
#include "oxbow/v1/config.pb.h"
#include "services/reward/reward_client.h"

namespace oxbow::rollout {

// Samples without a score, and the reason of the last one.
struct Unscored {
  uint32_t samples = 0;
  absl::Status reason;
  std::map<std::string, uint32_t> observed;  // Scored samples without this observed reward.
};

// Fills rewards of `samples` from one result per sample. An image without a score is
//   fail         -> the whole group fails: an error that names image and reason
//   drop_sample  -> reward_failed is set; the sample counts in no statistic
//   drop_group   -> reward_failed is set for every sample
// and never a reward of 0. An observed reward that is missing is counted, and changes nothing else.
// If the lease drops unscored samples (`drops`), `fail` is `drop_sample`; so it is for an image of
// which the server says that it cannot be scored (reward::IsFinal), since the group would be drawn
// again with the same one. If some image could not be scored because no server answers, returns
// that status, for which reward::IsUnscorable is false, whatever the config says.
absl::StatusOr<Unscored> ApplyScores(const v1::RewardConfig& config, bool drops,
                                     const std::vector<absl::StatusOr<reward::Scores>>& scores,
                                     std::vector<rl::Trajectory>& samples);

}  // namespace oxbow::rollout
