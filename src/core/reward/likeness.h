// How alike the pictures of a group are: what reward does not show.
//
// Distance of two pictures: root mean square of their differences over pixels and channels, in
// units of the full range (0 equal, 1 black against white). Two pictures nearer than a radius are
// the same find; how many members share a find is its niche (fitness sharing: Goldberg and
// Richardson, 1987).
#pragma once

#include <vector>

#include "core/reward/picture.h"

namespace oxbow::reward {

struct Likeness {
  double mean_distance = 0;  // To the other members; 0 where there are none.
  double niche_share = 1;    // Members within the radius, itself among them, over all members.
};

// One for each picture. Requires pictures of one size. Costs members^2 / 2 comparisons.
std::vector<Likeness> LikenessOf(const std::vector<Picture>& pictures, double radius);

}  // namespace oxbow::reward
