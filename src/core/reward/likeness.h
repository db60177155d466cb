// SPDX-License-Identifier: Apache-2.0
// How similar the images of a group are, which the reward does not show.
//
// Distance of two images: root mean square of their differences over pixels and channels, in units
// of the full range (0: equal, 1: black against white); of two videos over all their frames. Images
// that are closer than a radius are near duplicates. The share of near duplicates is the niche
// count of fitness sharing (Goldberg and Richardson, 1987), divided by the group size.
#pragma once

#include <vector>

#include "base/image8.h"

namespace oxbow::reward {

struct Likeness {
  double mean_distance = 0;    // To the other members; 0 if there are none.
  double duplicate_share = 1;  // Share of members within the radius, itself included.
};

// Distance of two pictures or videos. Requires equal sizes and numbers of frames.
double DistanceOf(const std::vector<Image8>& a, const std::vector<Image8>& b);

// One result per member, a picture or the frames of a video. Requires members of equal sizes and
// numbers of frames. Costs members^2 / 2 comparisons.
std::vector<Likeness> LikenessOf(const std::vector<std::vector<Image8>>& members, double radius);

}  // namespace oxbow::reward
