// 8-bit images in memory, and contact sheets of many of them for people to look at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/image8.h"

namespace oxbow::io {

// True if the sizes are positive, the channels 1 or 3 and `pixels` has the length they imply.
bool IsValid(const Image8& image);

struct Colour {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;

  bool operator==(const Colour&) const = default;
};

// Told apart by the common kinds of colour blindness, on black and on white.
inline constexpr Colour kRightColour{0x2e, 0xa0, 0x66};
inline constexpr Colour kWrongColour{0xd9, 0x4b, 0x3a};

struct GridCell {
  Image8 image;
  std::optional<Colour> frame;  // For example kRightColour where the image shows what was asked.
  std::string label;  // Above the image, in up to six lines: letters, digits, little punctuation.
};

struct GridOptions {
  int columns = 8;
  int scale = 4;        // Screen pixels per image pixel; nearest neighbour, nothing is smoothed.
  int gap = 6;          // Between cells and around the sheet, screen pixels.
  int frame_width = 3;  // Screen pixels; reserved for every cell if any cell has a frame.
  Colour background{0x24, 0x27, 0x2c};
  Colour ink{0xd5, 0xd9, 0xde};
};

// Lays the cells out row by row into one RGB image; a last row may be short. Images of
// different sizes are centred in cells of the largest size. Requires valid images, at least one
// cell, positive columns and scale, and at most kGridPixelsMax pixels in the result.
Image8 Grid(const std::vector<GridCell>& cells, const GridOptions& options = {});

inline constexpr int64_t kGridPixelsMax = int64_t{1} << 27;

}  // namespace oxbow::io
