// SPDX-License-Identifier: Apache-2.0
#include "core/reward/opencv_resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace oxbow::reward {
namespace {

constexpr int kBits = 11;
constexpr float kOne = 1 << kBits;

// Two neighbours of an output pixel along one axis, and their weights.
struct OpencvTap {
  int first = 0;
  int second = 0;
  int weight_first = 0;
  int weight_second = 0;
};

enum class ImageAxis { kX, kY };

// Beyond the border, x has one whole neighbour, and y two that are the same.
std::vector<OpencvTap> OpencvTapsOf(int in, int out, ImageAxis axis) {
  const double scale = 1 / (static_cast<double>(out) / in);
  std::vector<OpencvTap> taps;
  taps.reserve(static_cast<size_t>(out));
  for (int i = 0; i < out; ++i) {
    auto centre = static_cast<float>((i + 0.5) * scale - 0.5);
    int first = static_cast<int>(std::floor(centre));
    centre -= static_cast<float>(first);
    if (axis == ImageAxis::kX && (first < 0 || first >= in - 1)) {
      centre = 0;
      first = std::clamp(first, 0, in - 1);
    }
    taps.push_back({.first = std::clamp(first, 0, in - 1),
                    .second = std::clamp(first + 1, 0, in - 1),
                    .weight_first = static_cast<int>(std::nearbyint((1 - centre) * kOne)),
                    .weight_second = static_cast<int>(std::nearbyint(centre * kOne))});
  }
  return taps;
}

Image8 Halved(const Image8& image, int width, int height) {
  Image8 half{width, height, image.channels, {}};
  const auto channels = static_cast<size_t>(image.channels),
             stride = static_cast<size_t>(image.width) * channels;
  half.pixels.reserve(static_cast<size_t>(width) * height * channels);
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    for (size_t x = 0; x < static_cast<size_t>(width); ++x) {
      for (size_t c = 0; c < channels; ++c) {
        const uint8_t* const p = &image.pixels[2 * y * stride + 2 * x * channels + c];
        half.pixels.push_back(
            static_cast<uint8_t>((p[0] + p[channels] + p[stride] + p[stride + channels] + 2) >> 2));
      }
    }
  }
  return half;
}

// One row of the input, resized; 11 bits behind the point.
std::vector<int> MixedRow(const Image8& image, int y, const std::vector<OpencvTap>& taps) {
  const auto channels = static_cast<size_t>(image.channels);
  const uint8_t* const row =
      &image.pixels[static_cast<size_t>(y) * static_cast<size_t>(image.width) * channels];
  std::vector<int> mixed;
  mixed.reserve(taps.size() * channels);
  for (const OpencvTap& tap : taps) {
    for (size_t c = 0; c < channels; ++c) {
      mixed.push_back(row[static_cast<size_t>(tap.first) * channels + c] * tap.weight_first +
                      row[static_cast<size_t>(tap.second) * channels + c] * tap.weight_second);
    }
  }
  return mixed;
}

}  // namespace

Image8 ResizeAsOpencv(const Image8& image, int width, int height) {
  if (width == image.width && height == image.height) return image;
  if (image.width == 2 * width && image.height == 2 * height) return Halved(image, width, height);
  const std::vector<OpencvTap> columns = OpencvTapsOf(image.width, width, ImageAxis::kX);
  Image8 resized{width, height, image.channels, {}};
  resized.pixels.reserve(columns.size() * static_cast<size_t>(height * image.channels));
  int above_y = -1, below_y = -1;  // Output rows share input rows.
  std::vector<int> above, below;
  for (const OpencvTap& tap : OpencvTapsOf(image.height, height, ImageAxis::kY)) {
    if (tap.first == below_y) {
      above.swap(below);
      std::swap(above_y, below_y);
    }
    if (tap.first != above_y) above = MixedRow(image, above_y = tap.first, columns);
    if (tap.second != below_y) below = MixedRow(image, below_y = tap.second, columns);
    for (size_t i = 0; i < above.size(); ++i) {
      const int sum = ((tap.weight_first * (above[i] >> 4)) >> 16) +
                      ((tap.weight_second * (below[i] >> 4)) >> 16);
      resized.pixels.push_back(static_cast<uint8_t>(std::min((sum + 2) >> 2, 255)));
    }
  }
  return resized;
}

}  // namespace oxbow::reward
