// SPDX-License-Identifier: Apache-2.0
// Before the first step: waits for a reward server, and has it score one sample, so that a reward
// that cannot score at all ends the run while nothing has been made. And: whether the rewards are
// those that the run was trained on.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/image8.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/record/run_progress.h"
#include "services/learner/run_setup.h"
#include "services/reward/reward_client.h"

namespace oxbow::learner {

// Prompts that are tried, at most: one alone may be unfit for a reward.
inline constexpr size_t kPromptsChecked = 3;

// Waits, however long, until a server answers. Then has `frames`, a picture or a video, scored for
// one of `prompts` after the other until one is. Calls `says` with the reason each time that no
// server answers or scores in time. kFailedPrecondition, quoting the server, if it answers without
// a score; what RewardClient::Describe returns for wrong names. OK once `rewards` is cancelled.
absl::Status CheckRewards(reward::RewardClient& rewards, const std::vector<v1::Prompt>& prompts,
                          const std::vector<Image8>& frames,
                          const std::function<void(const std::string&)>& says);

// CheckRewards with grey pictures or videos of the size that training draws, and of evaluation's.
absl::Status TryRewards(reward::RewardClient& rewards, const RunSetup& setup, RunProgress& progress,
                        const std::function<void(const std::string&)>& says);

// The identity of each reward, by name: as it is now, or as `before` where it is not known now.
std::map<std::string, std::string> IdentitiesOf(
    const std::map<std::string, reward::RewardFacts>& facts,
    const std::map<std::string, std::string>& before);

// kFailedPrecondition if a reward has another identity than `before`, which it names: its scores
// cannot be compared with those that the run was trained on.
absl::Status CheckIdentities(const std::map<std::string, reward::RewardFacts>& facts,
                             const std::map<std::string, std::string>& before);

}  // namespace oxbow::learner
