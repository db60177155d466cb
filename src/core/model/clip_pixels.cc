// SPDX-License-Identifier: Apache-2.0
#include "core/model/clip_pixels.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace oxbow::model {
namespace {

constexpr size_t kChannels = 3;
constexpr std::array<double, kChannels> kMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, kChannels> kDeviation = {0.26862954, 0.26130258, 0.27577711};
constexpr int kValues = 256;

using ByteValues = std::array<std::array<float, kValues>, kChannels>;

void CheckRgb(const Image8& image) {
  OXBOW_CHECK(image.channels == static_cast<int>(kChannels) &&
              image.pixels.size() == static_cast<size_t>(image.width) * image.height * kChannels)
      << image.width << "x" << image.height << "x" << image.channels << " with "
      << image.pixels.size() << " bytes";
}

// Channels apart, bytes replaced by values of a table.
void Write(const Image8& image, const ByteValues& values, float* out) {
  const size_t pixels = image.pixels.size() / kChannels;
  for (size_t c = 0; c < kChannels; ++c) {
    for (size_t i = 0; i < pixels; ++i) *out++ = values[c][image.pixels[i * kChannels + c]];
  }
}

// The order of roundings is CLIPImageProcessor's: the quotient in float64, the rest in float32.
ByteValues Normalised() {
  ByteValues values{};
  for (size_t c = 0; c < kChannels; ++c) {
    for (int byte = 0; byte < kValues; ++byte) {
      const auto unit = static_cast<float>(byte * (1.0 / 255));
      values[c][static_cast<size_t>(byte)] =
          (unit - static_cast<float>(kMean[c])) / static_cast<float>(kDeviation[c]);
    }
  }
  return values;
}

ByteValues Units() {
  ByteValues values{};
  for (auto& channel : values) {
    for (int byte = 0; byte < kValues; ++byte) {
      channel[static_cast<size_t>(byte)] = static_cast<float>(byte) / 255.0F;
    }
  }
  return values;
}

at::Tensor ColumnOf(const std::array<double, kChannels>& values, const at::Tensor& like) {
  at::Tensor column = at::empty({3, 1, 1}, at::kFloat);
  for (size_t c = 0; c < kChannels; ++c) {
    column.data_ptr<float>()[c] = static_cast<float>(values[c]);
  }
  return column.to(like.device());
}

// Python's round: half to even.
int64_t Rounded(double x) { return static_cast<int64_t>(std::nearbyint(x)); }

}  // namespace

at::Tensor ClipPixels(const std::vector<Image8>& images) {
  OXBOW_CHECK(!images.empty()) << "no images";
  const int width = images[0].width, height = images[0].height;
  at::Tensor pixels =
      at::empty({static_cast<int64_t>(images.size()), 3, height, width}, at::kFloat);
  const ByteValues values = Normalised();
  for (size_t i = 0; i < images.size(); ++i) {
    CheckRgb(images[i]);
    OXBOW_CHECK(images[i].width == width && images[i].height == height) << "images of two sizes";
    Write(images[i], values, pixels[static_cast<int64_t>(i)].mutable_data_ptr<float>());
  }
  return pixels;
}

at::Tensor UnitPixels(const Image8& image) {
  CheckRgb(image);
  at::Tensor pixels = at::empty({3, image.height, image.width}, at::kFloat);
  Write(image, Units(), pixels.mutable_data_ptr<float>());
  return pixels;
}

at::Tensor NormaliseForClip(const at::Tensor& unit_pixels) {
  return (unit_pixels - ColumnOf(kMean, unit_pixels)) / ColumnOf(kDeviation, unit_pixels);
}

at::Tensor ResizeShorterAndCrop(const at::Tensor& unit_pixels, int64_t side) {
  const int64_t height = unit_pixels.size(1), width = unit_pixels.size(2);
  const int64_t shorter = std::min(height, width);
  const int64_t longer = side * std::max(height, width) / shorter;
  const int64_t to_height = height <= width ? side : longer;
  const int64_t to_width = width <= height ? side : longer;
  at::Tensor resized = unit_pixels;
  if (to_height != height || to_width != width) {
    resized = at::_upsample_bilinear2d_aa(unit_pixels.unsqueeze(0), {to_height, to_width},
                                          /*align_corners=*/false)
                  .squeeze(0);
  }
  const int64_t top = Rounded(static_cast<double>(to_height - side) / 2);
  const int64_t left = Rounded(static_cast<double>(to_width - side) / 2);
  return resized.narrow(1, top, side).narrow(2, left, side);
}

at::Tensor ResizeLongerAndPad(const at::Tensor& unit_pixels, int64_t side) {
  const int64_t height = unit_pixels.size(1), width = unit_pixels.size(2);
  if (std::max(height, width) == side && height == width) return unit_pixels;
  const double scale = static_cast<double>(side) / static_cast<double>(std::max(height, width));
  const int64_t to_height = std::max<int64_t>(1, Rounded(static_cast<double>(height) * scale));
  const int64_t to_width = std::max<int64_t>(1, Rounded(static_cast<double>(width) * scale));
  at::Tensor resized = unit_pixels;
  if (to_height != height || to_width != width) {
    resized = at::_upsample_bicubic2d_aa(unit_pixels.unsqueeze(0), {to_height, to_width},
                                         /*align_corners=*/false)
                  .squeeze(0);
  }
  const int64_t rows = side - to_height, columns = side - to_width;
  return at::constant_pad_nd(resized,
                             {columns / 2, columns - columns / 2, rows / 2, rows - rows / 2});
}

}  // namespace oxbow::model
