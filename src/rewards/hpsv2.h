// SPDX-License-Identifier: Apache-2.0
// HPSv2 and HPSv2.1 (arXiv:2306.09341): CLIP ViT-H/14 fine-tuned on human preferences; the weights
// say which of the two it is.
//
//   reward = cos(text, image),  about 0.2 to 0.35, higher is better
//
// Without a scale, as in the project's `score` function; its benchmark multiplies by 100. Input:
// torchvision's antialiased bicubic on floats to the longer side, zeros around it. The project's
// tokenizer first repairs broken Unicode (ftfy), then reads `&amp;` and the like as HTML does,
// twice. The second is done here, the first is not: a prompt of broken Unicode has other tokens.
//
// Weights: xswu/HPSv2, HPS_v2.1_compressed.pt through `oxbow convert-weights`, with config.json and
// tokenizer of laion/CLIP-ViT-H-14-laion2B-s32B-b79K. Source: hpsv2/img_score.py and
// hpsv2/src/open_clip/transform.py of HPSv2.
#pragma once

#include <memory>

#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

std::unique_ptr<reward::Scorer> MakeHpsv2(std::shared_ptr<ClipTowers> towers);

}  // namespace oxbow::rewards
