#include "core/reward/picture_statistics.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace oxbow::reward {
namespace {

constexpr int kLevelBits = 3;  // Per channel.

std::vector<double> LumaOf(const Image8& image) {
  std::vector<double> luma;
  luma.reserve(static_cast<size_t>(image.width) * image.height);
  const auto channels = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < image.pixels.size(); i += channels) {
    const uint8_t* const p = &image.pixels[i];
    luma.push_back((channels == 1 ? p[0] : .299 * p[0] + .587 * p[1] + .114 * p[2]) / 255);
  }
  return luma;
}

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double EdgeDensity(const std::vector<double>& luma, size_t width, size_t height) {
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

}  // namespace

PictureStatistics StatisticsOf(const Image8& image) {
  OXBOW_CHECK(image.width > 0 && image.height > 0 && (image.channels == 1 || image.channels == 3) &&
              image.pixels.size() ==
                  static_cast<size_t>(image.width) * image.height * image.channels)
      << image.width << "x" << image.height << "x" << image.channels << " with "
      << image.pixels.size() << " bytes";
  const std::vector<double> luma = LumaOf(image);
  return {.brightness = MeanOf(luma),
          .edge_density = EdgeDensity(luma, static_cast<size_t>(image.width),
                                      static_cast<size_t>(image.height)),
          .colour_entropy = ColourEntropy(image)};
}

}  // namespace oxbow::reward
