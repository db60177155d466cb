// SPDX-License-Identifier: Apache-2.0
#include "core/reward/picture_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/statistics.h"

namespace oxbow::reward {
namespace {

constexpr int kLevelBits = 3;  // Per channel.
constexpr int kStrongColour = 128;
constexpr size_t kCoarse = 4;  // Pixels.

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

// Mean square of the change of luma over `reach` pixels, along rows and columns; 0 where none is.
double MeanSquaredChange(const std::vector<double>& luma, size_t width, size_t height,
                         size_t reach) {
  double squares = 0;
  size_t count = 0;
  const auto add = [&](size_t from, size_t to) {
    const double change = luma[to] - luma[from];
    squares += change * change;
    ++count;
  };
  for (size_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < width; ++x) {
      const size_t i = y * width + x;
      if (x + reach < width) add(i, i + reach);
      if (y + reach < height) add(i, i + reach * width);
    }
  }
  return count == 0 ? 0 : squares / static_cast<double>(count);
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

double SaturatedShare(const Image8& image) {
  CheckSize(image);
  const auto channels = static_cast<size_t>(image.channels);
  size_t saturated = 0;
  for (size_t i = 0; i < image.pixels.size(); i += channels) {
    const uint8_t* const p = &image.pixels[i];
    const auto [least, most] = std::minmax_element(p, p + channels);
    saturated += *least == 0 || *most == 255 || *most - *least >= kStrongColour;
  }
  return static_cast<double>(saturated * channels) / static_cast<double>(image.pixels.size());
}

double FineDetail(const Image8& image) {
  const std::vector<double> luma = LumaOf(image);
  const auto width = static_cast<size_t>(image.width), height = static_cast<size_t>(image.height);
  if (width < 3 || height < 3) return 0;
  double squares = 0;
  for (size_t y = 1; y + 1 < height; ++y) {
    for (size_t x = 1; x + 1 < width; ++x) {
      const size_t i = y * width + x;
      const double around = luma[i - 1] + luma[i + 1] + luma[i - width] + luma[i + width];
      const double detail = luma[i] - around / 4;
      squares += detail * detail;
    }
  }
  return std::sqrt(squares / static_cast<double>((width - 2) * (height - 2)));
}

double Sharpness(const Image8& image) {
  const std::vector<double> luma = LumaOf(image);
  const auto width = static_cast<size_t>(image.width), height = static_cast<size_t>(image.height);
  const double coarse = MeanSquaredChange(luma, width, height, kCoarse);
  return coarse == 0 ? 0 : std::sqrt(MeanSquaredChange(luma, width, height, 1) / coarse);
}

}  // namespace oxbow::reward
