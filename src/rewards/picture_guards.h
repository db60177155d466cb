// SPDX-License-Identifier: Apache-2.0
// Guards against reward hacking: plain numbers about a picture, to be observed beside the reward
// that is trained on (core/reward/picture_statistics.h has the formulas). One of them that drifts
// while the reward rises says that the policy may be exploiting the reward.
//
//   brightness       mean luma, 0..1
//   edge_density     share of pixels at an edge, 0..1
//   colour_entropy   entropy of the colours, 0..9 bits (grey: 0..3)
#pragma once

#include <memory>
#include <string_view>

#include "core/reward/scorer.h"

namespace oxbow::rewards {

std::unique_ptr<reward::Scorer> MakeBrightness();
std::unique_ptr<reward::Scorer> MakeEdgeDensity();
std::unique_ptr<reward::Scorer> MakeColourEntropy();

// Whether a reward is one of these: more of it is neither better nor worse.
bool DescribesPictures(std::string_view reward);

}  // namespace oxbow::rewards
