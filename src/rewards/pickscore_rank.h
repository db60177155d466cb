// SPDX-License-Identifier: Apache-2.0
// PickScore's rank within the group of a prompt: only the order of the pictures counts.
//
//   reward = rank / n,  0 for the worst of n pictures, (n - 1) / n for the best
//
// Equal PickScores share the mean of their ranks; Flow-Factory breaks such ties by position. A
// picture that PickScore cannot score has no rank, and the others are ranked among themselves. A
// picture of no group has no score.
//
// Weights: as PickScore (rewards/pickscore.h). Source: PickScoreRankRewardModel in
// src/flow_factory/rewards/pick_score.py of Flow-Factory.
#pragma once

#include <memory>

#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

std::unique_ptr<reward::Scorer> MakePickScoreRank(std::shared_ptr<ClipTowers> towers);

}  // namespace oxbow::rewards
