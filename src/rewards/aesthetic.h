// SPDX-License-Identifier: Apache-2.0
// The LAION aesthetic predictor: how much people like the look of an image, whatever its prompt.
//
//   reward = W_5 (.. (W_1 e + b_1) ..) + b_5,  e the unit image embedding
//
// About 1 to 10, higher is better; not scaled, as in flow_grpo. The published head has five linear
// layers, 768-1024-128-64-16-1, and no activation between them. Input: Hugging Face's processor.
//
// Weights: openai/clip-vit-large-patch14, and sac+logos+ava1-l14-linearMSE.pth through
// `oxbow convert-weights`. Source: flow_grpo/aesthetic_scorer.py of flow_grpo, from
// christophschuhmann/improved-aesthetic-predictor.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"

namespace oxbow::rewards {

// `head` is a safetensors file with `layers.N.weight` and `layers.N.bias`. kNotFound, kDataLoss or
// kFailedPrecondition, naming the file: the layers must lead from the towers' width to one number.
absl::StatusOr<std::unique_ptr<reward::Scorer>> OpenAesthetic(std::shared_ptr<ClipTowers> towers,
                                                              const std::filesystem::path& head);

}  // namespace oxbow::rewards
