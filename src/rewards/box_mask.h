// SPDX-License-Identifier: Apache-2.0
// The pixels that a box covers, as cv2.fillPoly of OpenCV 4.8 to 4.10 draws it.
//
// PaddleX 3 takes OpenCV 4.10.0.84 and no other. There a span between two edges ends at the pixels
// nearest to them; before 4.8 and from 4.11 on it ends inside of them. A pixel or two decide
// whether the mean of a small box is above a threshold, so this does not depend on the OpenCV that
// is installed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/reward/text_boxes.h"

namespace oxbow::rewards {

// One byte a pixel, row by row, 1 inside or on the outline. Parts of numbers after the point do
// not count. Corners may lie outside of the mask: the ends of an edge are then those on the mask,
// rounded, and its slope changes with them. Requires a size of 1 x 1 at least.
std::vector<uint8_t> BoxMask(reward::PixelSize size, const reward::TextBox& corners);

}  // namespace oxbow::rewards
