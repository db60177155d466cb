// SPDX-License-Identifier: Apache-2.0
// Numbers that describe held-out pictures themselves, whatever a reward says of them.
//
// Where a clean picture is black and white, by the task of the run's rewards, grey is dust. Any
// other picture may be a photograph: light and colour, fine detail and sharpness say whether it
// looks like one (core/reward/picture_statistics.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/image8.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

// The frames of each picture.
using Pictures = std::vector<std::vector<Image8>>;

// Adds eval/speckle_mean, or eval/saturated_share, fine_detail and sharpness with their spreads
// over the pictures. Of a video four frames are looked at. Requires a picture.
void AddPictureNumbers(const v1::RewardConfig& reward, const Pictures& pictures,
                       std::map<std::string, double>& metrics);

inline constexpr int kSmallSide = 32;
inline constexpr size_t kSmallPicturesMax = 256;

// The first pictures at 32 x 32 pixels, the middle frame of a video.
std::vector<Image8> SmallPictures(const Pictures& pictures);

}  // namespace oxbow::learner
