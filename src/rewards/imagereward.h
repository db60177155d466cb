// SPDX-License-Identifier: Apache-2.0
// ImageReward (arXiv:2304.05977): BLIP reads prompt and image together, and a head that was trained
// on what people preferred makes a number of it.
//
//   reward = (head(h[CLS]) - 0.16717362830052426) / 1.0333394966054072
//
// About -2.3 to 2, higher is better, 0 in the middle of what its authors' models drew. The image is
// prepared by Pillow's bicubic resizing and torchvision's crop; the prompt is cut at 35 tokens of
// uncased BERT.
//
// Weights: ImageReward.pt of THUDM/ImageReward through `oxbow convert-weights`, as
// DIRECTORY/model.safetensors; vocab.txt of bert-base-uncased beside it. Source: ImageReward.py of
// ImageReward, which flow_grpo calls for each image.
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/exported_network.h"
#include "core/reward/scorer.h"

namespace oxbow::rewards {

// The errors of OpenNetwork and of BertTokenizer::Load; kFailedPrecondition for a vocabulary that
// the network does not embed.
absl::StatusOr<std::unique_ptr<reward::Scorer>> OpenImageReward(
    const std::filesystem::path& directory, const model::exported::NetworkOptions& options = {});

}  // namespace oxbow::rewards
