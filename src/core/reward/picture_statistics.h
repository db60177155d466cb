// SPDX-License-Identifier: Apache-2.0
// Plain numbers about an image, to be watched beside a reward. A policy that exploits a reward
// often drifts in one of them: images become bright, flat, noisy or of one colour while the reward
// rises.
//
// Luma is Y = .299 R + .587 G + .114 B, divided by 255 (ITU-R BT.601); grey is its own luma.
#pragma once

#include "base/image8.h"

namespace oxbow::reward {

// All require 1 or 3 channels, at least one pixel, and as many as the size says.

// Mean luma, 0..1.
double Brightness(const Image8& image);

inline constexpr double kEdgeContrast = 0.1;

// Share of pixels with sqrt(dx^2 + dy^2) > kEdgeContrast, where dx and dy are the changes of luma
// to the right and lower neighbour; the last column and row have none. 0..1.
double EdgeDensity(const Image8& image);

// Shannon entropy of the histogram of colours with 8 levels per channel, in bits: 0 for one colour,
// up to 9 for RGB and 3 for grey.
double ColourEntropy(const Image8& image);

// Share of pixels that cannot be stronger, or nearly so: a channel is 0 or 255, or two channels
// differ by half of the range or more. 0..1. Light, contrast and colour that are turned up raise
// it.
double SaturatedShare(const Image8& image);

// Energy of the highest frequencies: root mean square of Y less the mean of the four neighbours',
// over pixels that have four. 0..1. Noise, grain and grids raise it, and blur lowers it.
double FineDetail(const Image8& image);

// Root mean square of the change of Y from pixel to pixel, along rows and columns, over that of
// the change over four pixels: 1/4 of a ramp, 1/2 of steps that stand apart, 1 of white noise. It
// does not depend on contrast. 0 for a picture of one grey, or one within four pixels.
double Sharpness(const Image8& image);

}  // namespace oxbow::reward
