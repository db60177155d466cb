// SPDX-License-Identifier: Apache-2.0
// CLIP models that were fine-tuned on what people preferred: PickScore, its rank in a group, HPSv2.
#pragma once

#include <memory>
#include <vector>

#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

// PickScore (arXiv:2305.01569): CLIP ViT-H/14 fine-tuned on what people preferred.
//
//   reward = exp(logit_scale) cos(text, image) / 26
//
// Near 0.75 to 0.9 for what people like, as the published logit scale is about 100; higher is
// better. The division by 26 is that of flow_grpo and of Flow-Factory. Input: Hugging Face's
// processor (Pillow's bicubic).
//
// Weights: yuvalkirstain/PickScore_v1 with the tokenizer of laion/CLIP-ViT-H-14-laion2B-s32B-b79K.
// Source: flow_grpo/pickscore_scorer.py of flow_grpo, src/flow_factory/rewards/pick_score.py of
// Flow-Factory.
std::unique_ptr<reward::Scorer> MakePickScore(std::shared_ptr<ClipTowers> towers);

// PickScore's rank within the group of a prompt: only the order of the pictures counts.
//
//   reward = rank / n,  0 for the worst of n pictures, (n - 1) / n for the best
//
// Equal PickScores share the mean of their ranks; Flow-Factory breaks such ties by position. A
// picture that PickScore cannot score has no rank, and the others are ranked among themselves. A
// picture of no group has no score.
//
// Source: PickScoreRankRewardModel in src/flow_factory/rewards/pick_score.py of Flow-Factory.
std::unique_ptr<reward::Scorer> MakePickScoreRank(std::shared_ptr<ClipTowers> towers);

// rank / n of each value: 0 for the smallest of n, (n - 1) / n for the largest. Equal values share
// the mean of their ranks, so that order does not matter. Requires finite values.
std::vector<double> RankShares(const std::vector<double>& values);

// HPSv2 and HPSv2.1 (arXiv:2306.09341): CLIP ViT-H/14 fine-tuned on human preferences; the weights
// say which of the two it is.
//
//   reward = cos(text, image),  about 0.2 to 0.35, higher is better
//
// Without a scale, as in the project's `score` function; its benchmark multiplies by 100. Input:
// torchvision's antialiased bicubic on floats to the longer side, zeros around it. The project's
// tokenizer, open_clip's, cleans the prompt: io::CleanedPrompt says how, and what is left out.
//
// Weights: xswu/HPSv2, HPS_v2.1_compressed.pt through `oxbow convert-weights`, with config.json and
// tokenizer of laion/CLIP-ViT-H-14-laion2B-s32B-b79K. Source: hpsv2/img_score.py and
// hpsv2/src/open_clip/transform.py of HPSv2.
std::unique_ptr<reward::Scorer> MakeHpsv2(std::shared_ptr<ClipTowers> towers);

}  // namespace oxbow::rewards
