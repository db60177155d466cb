// SPDX-License-Identifier: Apache-2.0
// The 8-bit half of CLIP's image preprocessing: what Hugging Face's CLIPImageProcessor does with
// Pillow. Grey becomes RGB; the shorter side becomes `side` and the longer one keeps the
// proportion, rounded down, by Pillow's bicubic resizing; the middle is cut out, with the
// left and upper border rounded down. torchvision does the same to Pillow's images, but for the
// borders.
#pragma once

#include "base/image8.h"

namespace oxbow::reward {

struct ImageSize {
  int width = 0;
  int height = 0;
  bool operator==(const ImageSize&) const = default;
};

// The size whose shorter side is `side`. Requires positive sizes.
ImageSize ShorterSideTo(ImageSize size, int side);

// Requires positive sizes, 1 or 3 channels, and as many pixels as these say.
Image8 ToRgb(const Image8& image);

// Whether ClipCrop takes such an image: its sides lie within 1..kResizeSideMax, and so does the
// longer one after resizing, so that a thin strip does not become a giant.
bool CanClipCrop(ImageSize size, int side);

enum class CropBorder {
  kDown,      // Hugging Face's processors: half of an odd difference is rounded down.
  kHalfEven,  // torchvision's CenterCrop: to the even neighbour.
};

// [side, side] RGB. Requires CanClipCrop and a valid image.
Image8 ClipCrop(const Image8& image, int side, CropBorder border = CropBorder::kDown);

}  // namespace oxbow::reward
