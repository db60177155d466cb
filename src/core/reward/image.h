// The input of a scorer: an 8-bit image, channels interleaved, rows from top to bottom.
#pragma once

#include <cstdint>
#include <string>

namespace oxbow::reward {

struct Image {
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t channels = 1;
  std::string pixels;  // height * width * channels bytes.
};

}  // namespace oxbow::reward
