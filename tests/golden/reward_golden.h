// SPDX-License-Identifier: Apache-2.0
// Pictures for tests that compare with golden files: a function of kind, seed and size, drawn in
// the same way by tools/make_reward_goldens.py.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/image8.h"
#include "base/sha256.h"

namespace oxbow::reward {

// "noise": independent bytes. Otherwise: gradients with sharp edges.
inline Image8 DrawnPicture(const std::string& kind, uint32_t seed, int width, int height,
                           int channels) {
  Image8 image{width, height, channels, {}};
  const auto columns = static_cast<uint32_t>(width), depth = static_cast<uint32_t>(channels);
  const uint32_t s = seed % 17 + 3;
  for (uint32_t y = 0; y < static_cast<uint32_t>(height); ++y) {
    for (uint32_t x = 0; x < columns; ++x) {
      for (uint32_t c = 0; c < depth; ++c) {
        uint32_t h = seed + ((y * columns + x) * depth + c) * 0x9E3779B9u;
        h = (h ^ h >> 16) * 0x85EBCA6Bu;
        h = (h ^ h >> 13) * 0xC2B2AE35u;
        const uint32_t smooth = (x * s + y * 5 + c * 60) % 256;
        const bool inside = (x / s + y / (s + 2) + c) % 3 == 0;
        const uint32_t scene = inside ? 255 - smooth : smooth;
        image.pixels.push_back(static_cast<uint8_t>(kind == "noise" ? h >> 24 : scene));
      }
    }
  }
  return image;
}

inline std::string DigestOf(const Image8& image) {
  return Sha256Hex({reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()});
}

// Where the golden files are: OXBOW_REWARD_GOLDENS, or the repository's.
inline std::string RewardGolden(const std::string& file) {
  const char* directory = std::getenv("OXBOW_REWARD_GOLDENS");
  return std::string(directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/rewards") +
         "/" + file;
}

}  // namespace oxbow::reward
