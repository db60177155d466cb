// SPDX-License-Identifier: Apache-2.0
// An 8-bit image in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace oxbow {

// Rows from top to bottom, pixels from left to right, channels interleaved:
// pixels[(y * width + x) * channels + c].
struct Image8 {
  int width = 0;
  int height = 0;
  int channels = 1;  // 1: grey. 3: red, green, blue.
  std::vector<uint8_t> pixels;

  bool operator==(const Image8&) const = default;
};

}  // namespace oxbow
