// SPDX-License-Identifier: Apache-2.0
// Rewards of the pixels alone. Guards against reward hacking: plain numbers about a picture, to be
// observed beside the reward that is trained on (core/reward/picture_statistics.h has the
// formulas). One of them that drifts while the reward rises says that the policy may be exploiting
// the reward.
//
//   brightness       mean luma, 0..1
//   edge_density     share of pixels at an edge, 0..1
//   colour_entropy   entropy of the colours, 0..9 bits (grey: 0..3)
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/reward/scorer.h"

namespace oxbow::rewards {

std::unique_ptr<reward::Scorer> MakeBrightness();
std::unique_ptr<reward::Scorer> MakeEdgeDensity();
std::unique_ptr<reward::Scorer> MakeColourEntropy();

// Whether a reward is one of these: more of it is neither better nor worse.
bool DescribesPictures(std::string_view reward);

// The check that every reward makes of a picture that it looks at pixel by pixel:
// kInvalidArgument, naming the reward, unless the picture has positive sides of at most
// io::kJpegSideMax, 1 or 3 channels, and as many bytes as that says.
absl::Status CheckPicture(const Image8& image, const std::string& reward);

// How hard a picture is to compress. DDPO (arXiv:2305.13301) trains on it to show that a policy
// follows its reward: one value fills pictures with detail, the other empties them.
//
//   size (default)     bytes of the JPEG at quality 95 / 1000, flow_grpo's jpeg_incompressibility
//   compressibility    -size / 500, flow_grpo's jpeg_compressibility
//
// At 512 px a size is some 10 to 300. The JPEG is libjpeg's, with Pillow's settings (io/image.h).
// Source: jpeg_incompressibility and jpeg_compressibility in flow_grpo/rewards.py of flow_grpo.
// `variant` is one of the above; empty: size. kInvalidArgument names the known ones.
absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJpegSize(const std::string& variant);

}  // namespace oxbow::rewards
