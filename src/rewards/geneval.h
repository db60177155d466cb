// SPDX-License-Identifier: Apache-2.0
// GenEval (arXiv:2310.11513): a detector finds the objects of an image, CLIP says what colour they
// have, and rules (core/reward/geneval_rule.h) compare both with the prompt's metadata.
//
//   official    the published evaluator: 1 if all is right, else 0
//   flow_grpo   the training score of Flow-GRPO's server, a mean of parts, -14..1. As there, the
//               image is a JPEG of quality 75 on its way, and the detector sees red and blue
//               swapped.
//
// The note of a score is the prompt's tag and what is wrong. An object's colour is that of ten
// whose texts ("a photo of a red bench", "a photo of a red-colored bench", "a photo of a red
// object") are nearest to its box with everything around the object in grey (#999).
//
// Weights: the detector's directory (rewards/instance_detector.h) has mmdetection's
// mask2former_swin-s-p4-w7-224_lsj_8x2_50e_coco through `oxbow convert-weights`; CLIP is
// openai/clip-vit-large-patch14 (rewards/clip_towers.h).
#pragma once

#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/exported_network.h"
#include "core/reward/geneval_rule.h"
#include "core/reward/scorer.h"
#include "rewards/clip_towers.h"
#include "rewards/instance_detector.h"

namespace oxbow::rewards {

// The errors of InstanceDetector::Open; kFailedPrecondition if it does not tell GenEval's classes
// apart.
absl::StatusOr<std::unique_ptr<reward::Scorer>> OpenGeneval(
    const std::filesystem::path& detector, std::shared_ptr<ClipTowers> towers,
    reward::GenevalVariant variant, const model::exported::NetworkOptions& options = {});

// The object alone on grey, cut to its box. Requires RGB and a box with area.
Image8 ColourCrop(const Image8& image, const Instance& object);

}  // namespace oxbow::rewards
