// SPDX-License-Identifier: Apache-2.0
// Pictures that are as hard to compress as photographs, for tests at real sizes: noise of eight
// octaves. At 512 px and quality 95 a JPEG of one takes 90 KB; five photographs of scikit-image
// take 53 to 99 KB.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/image8.h"

namespace oxbow::testing {

// From -1 to 1, by a lattice point.
inline float LatticeNoise(uint32_t seed, uint32_t x, uint32_t y) {
  uint32_t h = seed * 0x9e3779b9u ^ x * 0x85ebca6bu ^ y * 0xc2b2ae35u;
  h = (h ^ (h >> 15)) * 0x2c1b3c6du;
  h = (h ^ (h >> 12)) * 0x297a2d39u;
  return static_cast<float>(h >> 8) / (1 << 23) - 1.0F;
}

inline float SmoothNoise(uint32_t seed, int x, int y, int period) {
  const auto ease = [](float t) { return t * t * (3 - 2 * t); };
  const auto left = static_cast<uint32_t>(x / period), top = static_cast<uint32_t>(y / period);
  const float fx = ease(static_cast<float>(x % period) / static_cast<float>(period));
  const float fy = ease(static_cast<float>(y % period) / static_cast<float>(period));
  const auto row = [&](uint32_t at) {
    return std::lerp(LatticeNoise(seed, left, at), LatticeNoise(seed, left + 1, at), fx);
  };
  return std::lerp(row(top), row(top + 1), fy);
}

inline Image8 PhotoLike(int width, int height, uint32_t seed) {
  constexpr float kAmplitudes[] = {60, 45, 35, 28, 22, 18, 14, 12};
  Image8 image{width, height, 3, {}};
  image.pixels.reserve(static_cast<size_t>(width) * height * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      float light = 128;
      int period = 256;
      for (const float amplitude : kAmplitudes) {
        light += amplitude * SmoothNoise(seed + static_cast<uint32_t>(period), x, y, period);
        period /= 2;
      }
      for (uint32_t c = 0; c < 3; ++c) {
        const float tint = 40 * SmoothNoise(seed + 1000 + c, x, y, 128);
        image.pixels.push_back(static_cast<uint8_t>(std::clamp(light + tint, 0.0F, 255.0F)));
      }
    }
  }
  return image;
}

}  // namespace oxbow::testing
