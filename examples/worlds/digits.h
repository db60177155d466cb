// SPDX-License-Identifier: Apache-2.0
// The synthetic task `digits`: the prompt "text 473" asks for a small grey image of that number.
//
// An image has 8 rows of 20 columns, from -1 (black) to 1 (white). There is no autoencoder: the
// latent is the image. Three glyphs, 5 wide and 7 high, are in cells at columns 1, 7 and 13. Their
// common row offset, 0 or 1, is free, so that one prompt has two right images:
//
//   ....................    107 at offset 1
//   ...#....###..#####..
//   ..##...#...#.....#..
//   ...#...#...#....#...
//   ...#...#...#...#....
//   ...#...#...#..#.....
//   ...#...#...#..#.....
//   .#####..###...#.....
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::worlds {

inline constexpr int kDigitCount = 3;
inline constexpr int kImageHeight = 8;
inline constexpr int kImageWidth = 20;
inline constexpr int kImagePixels = kImageHeight * kImageWidth;
inline constexpr int kGlyphHeight = 7;
inline constexpr int kGlyphWidth = 5;
inline constexpr int kRowOffsets = 2;
inline constexpr std::array<int, kDigitCount> kCellColumns = {1, 7, 13};

using Digits = std::array<int, kDigitCount>;  // Each 0..9, most significant first.

// Whether a glyph at row offset `offset` is white at `row` (0..7) and `column` (0..4) of its cell.
// Requires digit in 0..9 and offset in 0..1.
bool GlyphWhite(int digit, int offset, int row, int column);

// The image of a number, row-major, every value -1 or 1. Requires offset in 0..1.
std::array<float, kImagePixels> RenderDigits(const Digits& digits, int offset);

// The digits of a number 0..999, and the reverse.
Digits DigitsOf(int number);
int NumberOf(const Digits& digits);

// Parses exactly "text ddd". kInvalidArgument for any other text.
absl::StatusOr<Digits> ParseDigitsPrompt(std::string_view text);

}  // namespace oxbow::worlds
