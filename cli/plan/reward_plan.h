// SPDX-License-Identifier: Apache-2.0
// The rewards of a run's own servers, and what they take, before the run starts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/plan/resource_plan.h"
#include "config/validate.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

// Loads them, on the CPU: a process that goes on keeps nothing on a GPU. Errors name the reward,
// and the file or tensor that is missing. `says` is told what begins: files of gigabytes are
// hashed.
absl::StatusOr<std::vector<reward::RewardFacts>> LoadOwnRewards(
    const v1::RewardConfig& reward,
    const std::function<void(const std::string& doing)>& says = [](const std::string&) {});

// The same, and whether the prompts of both files have what these rewards need to know of them, as
// CheckMetadataKeys. `oxbow validate` and `oxbow train` both ask this. `command` names this one in
// lines of progress on stderr, where it takes long.
absl::StatusOr<std::vector<reward::RewardFacts>> CheckOwnRewards(const v1::RunConfig& config,
                                                                 const std::string& command);

// Whether an error of this key keeps them from being loaded.
bool KeepsRewardsAway(const std::string& key);

// Weights that a reward server holds. Rewards over one model, device and type hold them once.
struct RewardWeights {
  std::string path;
  std::string device;  // "cpu", "cuda" or "cuda:0".
  uint64_t bytes = 0;
  std::vector<std::string> rewards;  // That use them.
};

// In the order of the rewards, from the headers of the files alone. What has no safetensors files
// is left out.
std::vector<RewardWeights> WeightsOfRewards(const v1::RewardConfig& reward);

// Bytes of that on each device, in one server.
BytesOfDevices RewardBytes(const v1::RewardConfig& reward);

// A line for each reward with its identity, and one for each of their weights.
std::string RewardsText(const v1::RunConfig& config,
                        const std::vector<reward::RewardFacts>& rewards);

// kInvalidArgument names the first reward, key and prompt of `file` whose metadata has not what the
// reward needs.
absl::Status CheckMetadataKeys(const std::vector<reward::RewardFacts>& rewards,
                               const std::vector<v1::Prompt>& prompts, const std::string& file);

// Asks the servers of reward.endpoints which rewards they have, side by side, each for at most
// `timeout`. Those that do not answer, for which a run waits: warnings. Where all answer, the
// rewards of the run that none of them has and that are not the run's own: errors, since a run ends
// by them. Nothing without such servers.
std::vector<config::Problem> CheckEndpoints(const v1::RewardConfig& config,
                                            absl::Duration timeout = absl::Seconds(2));

}  // namespace oxbow::cli
