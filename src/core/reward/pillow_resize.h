// SPDX-License-Identifier: Apache-2.0
// Resizing of 8-bit images, bit for bit as Pillow's Image.resize does it.
//
// Pillow before 13 resizes in two passes, first along rows, then along columns; each pass ends in 8
// bits. Pillow 13 begins with columns where the height shrinks by more than twice as many pixels as
// the width, and then differs; square images are not touched by this.
//
// An output pixel at x is a weighted sum of input pixels around the centre c = (x + 1/2) in / out:
//
//   w_i ~ k((i + 1/2 - c) / s),  s = max(1, in / out),  |i + 1/2 - c| < support s,  sum w_i = 1
//
// so that k widens when an image shrinks (antialiasing). Weights are float64, then rounded to
// fixed point with 22 bits behind the point. Sums are integers, rounded half up and clipped to
// 0..255. A pass that keeps the size is left out. Kernels (Keys, 1981):
//
//   bilinear  k(t) = 1 - |t|,                             support 1
//   bicubic   k(t) = 1.5 |t|^3 - 2.5 |t|^2 + 1            for |t| < 1
//                    -.5 |t|^3 + 2.5 |t|^2 - 4 |t| + 2    for |t| < 2,  support 2
//
// CLIP's published preprocessing resizes so. Antialiased resizing of torch differs by up to 21 of
// 255 from it when it rounds at the end alone.
#pragma once

#include "base/image8.h"

namespace oxbow::reward {

enum class ResizeKernel { kBilinear, kBicubic };

// The largest width and height, of input and output: sums then fit 32 bits and weights fit memory.
inline constexpr int kResizeSideMax = 1 << 15;

// Requires 1 or 3 channels, as many pixels as the size says, and sides within 1..kResizeSideMax.
Image8 ResizeAsPillow(const Image8& image, int width, int height, ResizeKernel kernel);

}  // namespace oxbow::reward
