// SPDX-License-Identifier: Apache-2.0
// CLIPScore: how well an image fits its prompt, by cos = cos(text, image) of a plain CLIP. Higher
// is better. Three conventions are in use:
//
//   flow_grpo      exp(logit_scale) cos / 30       bilinear on floats   about 0.5 to 1.2
//   flow_factory   cos                             processor            about 0.15 to 0.35
//   hessel         2.5 max(cos, 0)                 processor            about 0.4 to 0.9
//                  of "A photo depicts " + prompt, cleaned (io::CleanedPrompt)
//
// flow_grpo gives floats of the decoder to the resizing; here they were rounded to 8 bits before.
//
// Weights: openai/clip-vit-large-patch14; Hessel et al. use openai/clip-vit-base-patch32. Sources:
// flow_grpo/clip_scorer.py of flow_grpo, src/flow_factory/rewards/clip.py of Flow-Factory,
// arXiv:2104.08718.
#pragma once

#include <memory>

#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

enum class ClipScoreVariant { kFlowGrpo, kFlowFactory, kHessel };

// Named clipscore whatever the variant, which is part of its identity.
std::unique_ptr<reward::Scorer> MakeClipScore(std::shared_ptr<ClipTowers> towers,
                                              ClipScoreVariant variant);

}  // namespace oxbow::rewards
