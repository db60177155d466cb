// SPDX-License-Identifier: Apache-2.0
// PaddleOCR's work on pictures around its networks, with OpenCV: boxes of a detector's map, and the
// lines of text in them.
//
// Source: DBPostProcess and CropByPolys of PaddleX.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/image8.h"
#include "core/reward/text_boxes.h"

namespace oxbow::rewards {

// The pixels that a box covers, as cv2.fillPoly of OpenCV 4.8 to 4.10 draws it.
//
// PaddleX 3 takes OpenCV 4.10.0.84 and no other. There a span between two edges ends at the pixels
// nearest to them; before 4.8 and from 4.11 on it ends inside of them. A pixel or two decide
// whether the mean of a small box is above a threshold, so this does not depend on the OpenCV that
// is installed.
//
// One byte a pixel, row by row, 1 inside or on the outline. Parts of numbers after the point do
// not count. Corners may lie outside of the mask: the ends of an edge are then those on the mask,
// rounded, and its slope changes with them. Requires a size of 1 x 1 at least.
std::vector<uint8_t> BoxMask(reward::PixelSize size, const reward::TextBox& corners);

inline constexpr int kCandidatesMax =
    1000;                                 // Regions that become boxes; PaddleX leaves out others.
inline constexpr int kRegionsMax = 5000;  // More are no text.

// Boxes on a picture of size `picture`, in reading order, of a map that says how probable text is
// at each pixel: regions above 0.3 whose box has a mean of 0.6 at least, grown by 1.5.
// kFailedPrecondition for more than kRegionsMax regions. Requires a map of `size`.
absl::StatusOr<std::vector<reward::TextBox>> FindTextBoxes(absl::Span<const float> map,
                                                           reward::PixelSize size,
                                                           reward::PixelSize picture);

// The picture inside the smallest rectangle around a box, upright: a line that is half as high
// again as it is wide is turned to the left. Nothing where the rectangle has no pixel.
std::optional<Image8> CutLine(const Image8& picture, const reward::TextBox& box);

// cv::resize, bilinear.
Image8 ResizeAsOpenCv(const Image8& picture, reward::PixelSize size);

}  // namespace oxbow::rewards
