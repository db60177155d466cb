// SPDX-License-Identifier: Apache-2.0
#include "core/reward/picture_statistics.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/statistics.h"

namespace oxbow::reward {
namespace {

constexpr int kLevelBits = 3;  // Per channel.

void CheckSize(const Image8& image) {
  OXBOW_CHECK(image.width > 0 && image.height > 0 && (image.channels == 1 || image.channels == 3) &&
              image.pixels.size() ==
                  static_cast<size_t>(image.width) * image.height * image.channels)
      << image.width << "x" << image.height << "x" << image.channels << " with "
      << image.pixels.size() << " bytes";
}

std::vector<double> LumaOf(const Image8& image) {
  CheckSize(image);
  std::vector<double> luma;
  luma.reserve(static_cast<size_t>(image.width) * image.height);
  const auto channels = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < image.pixels.size(); i += channels) {
    const uint8_t* const p = &image.pixels[i];
    luma.push_back((channels == 1 ? p[0] : .299 * p[0] + .587 * p[1] + .114 * p[2]) / 255);
  }
  return luma;
}

}  // namespace

double Brightness(const Image8& image) { return Mean(LumaOf(image)); }

double EdgeDensity(const Image8& image) {
  const std::vector<double> luma = LumaOf(image);
  const auto width = static_cast<size_t>(image.width), height = static_cast<size_t>(image.height);
  size_t edges = 0;
  for (size_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < width; ++x) {
      const size_t i = y * width + x;
      const double dx = x + 1 < width ? luma[i + 1] - luma[i] : 0;
      const double dy = y + 1 < height ? luma[i + width] - luma[i] : 0;
      if (std::hypot(dx, dy) > kEdgeContrast) ++edges;
    }
  }
  return static_cast<double>(edges) / static_cast<double>(luma.size());
}

double ColourEntropy(const Image8& image) {
  CheckSize(image);
  std::array<size_t, size_t{1} << (3 * kLevelBits)> counts{};
  const auto channels = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < image.pixels.size(); i += channels) {
    size_t colour = 0;
    for (size_t c = 0; c < channels; ++c) {
      colour = colour << kLevelBits | image.pixels[i + c] >> (8 - kLevelBits);
    }
    ++counts[colour];
  }
  const size_t of_image = image.pixels.size() / channels;
  const auto pixels = static_cast<double>(of_image);
  double entropy = 0;
  for (const size_t count : counts) {
    const double share = static_cast<double>(count) / pixels;
    if (count > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

}  // namespace oxbow::reward
