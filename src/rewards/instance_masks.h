// SPDX-License-Identifier: Apache-2.0
// Instances of a Mask2Former (arXiv:2112.01527) from its logits, as mmdetection 2's
// MaskFormerFusionHead makes them:
//
//   score of (query, class)  softmax over the classes and "none", without "none"; the best 100
//   mask of a query          its logits, resized to the input and then to the image, above 0
//   score of an instance     score of (query, class) times the mean of the sigmoids in its mask
//   box                      around its mask
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/reward/clip_crop.h"
#include "core/reward/geneval_rule.h"

namespace oxbow::rewards {

struct Instance {
  reward::Detection detection;
  std::vector<uint8_t> mask;  // [height, width] of the image; 1 inside.
};

// An image on its way through the network.
struct DetectorSizes {
  reward::ImageSize image;    // As it came.
  reward::ImageSize resized;  // As it was resized, at the upper left of
  reward::ImageSize input;    // what the network saw.
};

// Instances whose scores are greater than `score_least`, in no order. classes [Q, K + 1] and masks
// [Q, h, w]: logits in float32 on the CPU. Masks that cannot be among them are not resized.
std::vector<Instance> InstancesOf(const at::Tensor& classes, const at::Tensor& masks,
                                  const DetectorSizes& sizes, float score_least);

}  // namespace oxbow::rewards
