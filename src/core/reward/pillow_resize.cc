// SPDX-License-Identifier: Apache-2.0
#include "core/reward/pillow_resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace oxbow::reward {
namespace {

// A sum of 8-bit pixels times weights keeps two bits for sign and overshoot.
constexpr int kFractionBits = 32 - 8 - 2;
constexpr int32_t kHalf = 1 << (kFractionBits - 1);

double SupportOf(ResizeKernel kernel) { return kernel == ResizeKernel::kBilinear ? 1 : 2; }

// The order of operations is Pillow's: the last bit of a weight depends on it.
double Evaluate(ResizeKernel kernel, double t) {
  t = std::abs(t);
  if (kernel == ResizeKernel::kBilinear) return t < 1 ? 1 - t : 0;
  constexpr double kA = -0.5;
  if (t < 1) return ((kA + 2) * t - (kA + 3)) * t * t + 1;
  if (t < 2) return (((t - 5) * t + 8) * t - 4) * kA;
  return 0;
}

// The input pixels behind one output pixel: `weights` from `first` on.
struct Tap {
  int first = 0;
  std::vector<int32_t> weights;
};

int32_t FixedPoint(double weight) {
  return static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kFractionBits));
}

Tap TapOf(int in, double scale, double widening, int x, ResizeKernel kernel) {
  const double support = SupportOf(kernel) * widening;
  const double centre = (x + 0.5) * scale;
  // Rounded as Pillow rounds. NOLINTBEGIN(bugprone-incorrect-roundings)
  const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
  const int end = std::min(static_cast<int>(centre + support + 0.5), in);
  // NOLINTEND(bugprone-incorrect-roundings)
  const double narrowing = 1 / widening;
  std::vector<double> weights;
  double sum = 0;
  for (int i = 0; i < end - first; ++i) {
    weights.push_back(Evaluate(kernel, (i + first - centre + 0.5) * narrowing));
    sum += weights.back();
  }
  Tap tap{.first = first, .weights = {}};
  for (const double weight : weights) {
    tap.weights.push_back(FixedPoint(sum != 0 ? weight / sum : weight));
  }
  return tap;
}

std::vector<Tap> TapsOf(int in, int out, ResizeKernel kernel) {
  const double scale = static_cast<double>(in) / out;
  std::vector<Tap> taps;
  taps.reserve(static_cast<size_t>(out));
  for (int x = 0; x < out; ++x) taps.push_back(TapOf(in, scale, std::max(scale, 1.0), x, kernel));
  return taps;
}

uint8_t Rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

// One pass over lines of samples: an output sample is a sum over input samples that lie `stride`
// bytes apart.
uint8_t Weighted(const uint8_t* samples, size_t stride, const Tap& tap) {
  int32_t sum = kHalf;
  const uint8_t* sample = samples + static_cast<size_t>(tap.first) * stride;
  for (const int32_t weight : tap.weights) {
    sum += *sample * weight;
    sample += stride;
  }
  return Rounded(sum);
}

Image8 AlongRows(const Image8& image, int width, ResizeKernel kernel) {
  const std::vector<Tap> taps = TapsOf(image.width, width, kernel);
  const auto channels = static_cast<size_t>(image.channels);
  Image8 out{width, image.height, image.channels, {}};
  out.pixels.reserve(static_cast<size_t>(width) * image.height * channels);
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* const row = &image.pixels[static_cast<size_t>(y) * image.width * channels];
    for (const Tap& tap : taps) {
      for (size_t c = 0; c < channels; ++c) {
        out.pixels.push_back(Weighted(row + c, channels, tap));
      }
    }
  }
  return out;
}

Image8 AlongColumns(const Image8& image, int height, ResizeKernel kernel) {
  const size_t row = static_cast<size_t>(image.width) * image.channels;
  Image8 out{image.width, height, image.channels, {}};
  out.pixels.reserve(row * height);
  for (const Tap& tap : TapsOf(image.height, height, kernel)) {
    for (size_t x = 0; x < row; ++x) {
      out.pixels.push_back(Weighted(&image.pixels[x], row, tap));
    }
  }
  return out;
}

bool Fits(int side) { return side >= 1 && side <= kResizeSideMax; }

}  // namespace

Image8 ResizeAsPillow(const Image8& image, int width, int height, ResizeKernel kernel) {
  OXBOW_CHECK(Fits(image.width) && Fits(image.height) && Fits(width) && Fits(height))
      << "sides " << image.width << "x" << image.height << " to " << width << "x" << height;
  OXBOW_CHECK((image.channels == 1 || image.channels == 3) &&
              image.pixels.size() ==
                  static_cast<size_t>(image.width) * image.height * image.channels)
      << image.pixels.size() << " bytes, " << image.channels << " channels";
  Image8 resized = width == image.width ? image : AlongRows(image, width, kernel);
  if (height != image.height) resized = AlongColumns(resized, height, kernel);
  return resized;
}

}  // namespace oxbow::reward
