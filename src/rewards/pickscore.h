// SPDX-License-Identifier: Apache-2.0
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
#pragma once

#include <memory>

#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

std::unique_ptr<reward::Scorer> MakePickScore(std::shared_ptr<ClipTowers> towers);

}  // namespace oxbow::rewards
