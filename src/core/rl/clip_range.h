// Where a ratio is clipped: to [1 - low, 1 + high].
#pragma once

namespace oxbow::rl {

struct ClipRange {
  double low = 0;
  double high = 0;
};

}  // namespace oxbow::rl
