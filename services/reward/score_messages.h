// SPDX-License-Identifier: Apache-2.0
// The messages of Reward.Score and Reward.Describe, read and written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/reward.pb.h"

namespace oxbow::reward {

inline constexpr uint64_t kFramesMax = 4096;  // Frames of one video that travel.

// True if the call, or the reward, ended without a word on the image. Scoring has no side effects,
// so it may be asked for again.
bool IsAbsence(const absl::Status& status);

RewardFacts FactsOf(const v1::RewardDescription& description);
void Describe(const RewardFacts& facts, v1::RewardDescription& description);

// The outcomes of a response for each reward of `wanted`, all finite or an error; every error names
// `endpoint`. An absence is that of one reward on this server (it loads, or has too much to do).
std::map<std::string, absl::StatusOr<double>> OutcomesOf(const v1::ScoreResponse& response,
                                                         const std::vector<std::string>& wanted,
                                                         const std::string& endpoint);

}  // namespace oxbow::reward
