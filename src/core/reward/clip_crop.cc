// SPDX-License-Identifier: Apache-2.0
#include "core/reward/clip_crop.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "core/reward/pillow_resize.h"

namespace oxbow::reward {
namespace {

bool CropFits(int64_t length) { return length >= 1 && length <= kResizeSideMax; }

size_t BorderOf(int difference, CropBorder border) {
  if (border == CropBorder::kDown) return static_cast<size_t>(difference / 2);
  return static_cast<size_t>(std::nearbyint(difference / 2.0));
}

Image8 CutMiddle(const Image8& image, int side, CropBorder border) {
  const auto channels = static_cast<size_t>(image.channels);
  const size_t left = BorderOf(image.width - side, border);
  const size_t top = BorderOf(image.height - side, border);
  Image8 cut{side, side, image.channels, {}};
  cut.pixels.reserve(static_cast<size_t>(side) * side * channels);
  for (size_t y = 0; y < static_cast<size_t>(side); ++y) {
    const auto begin =
        image.pixels.begin() + static_cast<int64_t>(((top + y) * image.width + left) * channels);
    cut.pixels.insert(cut.pixels.end(), begin, begin + static_cast<int64_t>(side * channels));
  }
  return cut;
}

}  // namespace

ImageSize ShorterSideTo(ImageSize size, int side) {
  const int64_t shorter = std::min(size.width, size.height);
  const int64_t longer = side * int64_t{std::max(size.width, size.height)} / shorter;
  const int rounded = static_cast<int>(std::min<int64_t>(longer, INT32_MAX));
  return size.width <= size.height ? ImageSize{side, rounded} : ImageSize{rounded, side};
}

Image8 ToRgb(const Image8& image) {
  OXBOW_CHECK(image.channels == 1 || image.channels == 3) << image.channels << " channels";
  if (image.channels == 3) return image;
  Image8 rgb{image.width, image.height, 3, {}};
  rgb.pixels.reserve(3 * image.pixels.size());
  for (const uint8_t grey : image.pixels) rgb.pixels.insert(rgb.pixels.end(), 3, grey);
  return rgb;
}

bool CanClipCrop(ImageSize size, int side) {
  if (!CropFits(size.width) || !CropFits(size.height) || !CropFits(side)) return false;
  const ImageSize resized = ShorterSideTo(size, side);
  return CropFits(resized.width) && CropFits(resized.height);
}

Image8 ClipCrop(const Image8& image, int side, CropBorder border) {
  const ImageSize size{image.width, image.height};
  OXBOW_CHECK(CanClipCrop(size, side)) << size.width << "x" << size.height << " to " << side;
  const ImageSize resized = ShorterSideTo(size, side);
  return CutMiddle(
      ResizeAsPillow(ToRgb(image), resized.width, resized.height, ResizeKernel::kBicubic), side,
      border);
}

}  // namespace oxbow::reward
