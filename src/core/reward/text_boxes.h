// SPDX-License-Identifier: Apache-2.0
// Boxes of text in a picture, as PaddleOCR makes and reads them: what is arithmetic alone.
//
// A detector gets the picture at DetectionSize and says how probable text is at each pixel. A
// region of such pixels becomes a box, the box grows by what training shrank it (Unclipped), and
// each box is cut out as a line of text, 48 pixels high (LineWidthsOf).
//
// Source: DetResizeForTest, DBPostProcess, SortQuadBoxes and OCRReisizeNormImg of PaddleX, with the
// numbers of its pipeline OCR (limit_type min, limit_side_len 64, max_side_limit 4000).
#pragma once

#include <array>
#include <vector>

namespace oxbow::reward {

struct BoxPoint {
  float x = 0;
  float y = 0;
  bool operator==(const BoxPoint&) const = default;
};
using TextBox = std::array<BoxPoint, 4>;  // Upper left, upper right, lower right, lower left.

struct PixelSize {
  int width = 0;
  int height = 0;
  bool operator==(const PixelSize&) const = default;
};

// A picture is set into `padded`, black at right and below, and that is resized to `resized`, whose
// sides are multiples of 32.
struct DetectionSizes {
  PixelSize padded;
  PixelSize resized;
};
DetectionSizes DetectionSizesOf(PixelSize picture);

inline constexpr int kLineHeight = 48;
inline constexpr int kLineWidthMax = 3200;

// A line is resized to 48 x `resized`; its columns up to `padded` are grey.
struct LineWidths {
  int resized = 0;
  int padded = 0;
};
LineWidths LineWidthsOf(PixelSize line);

// The corners of a rectangle in the order of TextBox.
TextBox InOrder(TextBox corners);

// The outline of a box grown by `ratio` times its area over its perimeter, with round corners:
// Clipper's offset, as pyclipper gives it, on whole pixels. Requires a convex box in order whose
// shorter side is at least 3.
std::vector<BoxPoint> Unclipped(const TextBox& box, double ratio);

// A box of a map of size `from` on a picture of size `to`, in whole pixels, both ends included.
TextBox Scaled(const TextBox& box, PixelSize from, PixelSize to);

// From top to bottom, and from left to right where a box begins less than 10 pixels below the one
// before it.
void SortForReading(std::vector<TextBox>& boxes);

}  // namespace oxbow::reward
