// SPDX-License-Identifier: Apache-2.0
// The synthetic task `clip`: the prompt "clip 47" asks for a small grey video of that number, which
// drifts across the picture.
//
// A clip has 3 frames of 8 rows and 20 columns, from -1 (black) to 1 (white). There is no
// autoencoder: the latent is the video. The two glyphs of examples/worlds/digits.h stand side by
// side, 11 columns together. Their row, 0 or 1, and their way, from the left or from the right, are
// free, so that one prompt has four right clips. In each frame they are 4 columns further:
//
//   ....................  ....................  ....................   47 from the left, row 1
//   .#...#.#####........  .....#...#.#####....  .........#...#.#####
//   .#...#.....#........  .....#...#.....#....  .........#...#.....#
//   .#...#....#.........  .....#...#....#.....  .........#...#....#.
//   .#####...#..........  .....#####...#......  .........#####...#..
//   .....#..#...........  .........#..#.......  .............#..#...
//   .....#..#...........  .........#..#.......  .............#..#...
//   .....#..#...........  .........#..#.......  .............#..#...
//
// A prompt says nothing of places or of the way: a video model whose positions are relative cannot
// be told them.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "examples/worlds/digits.h"

namespace oxbow::worlds {

inline constexpr int kClipFrames = 3;
inline constexpr int kClipHeight = 8;
inline constexpr int kClipWidth = 20;
inline constexpr int kFramePixels = kClipHeight * kClipWidth;
inline constexpr int kClipPixels = kClipFrames * kFramePixels;
inline constexpr int kClipDigits = 2;
inline constexpr int kClipNumberWidth = 2 * kGlyphWidth + 1;
inline constexpr int kClipColumns = kClipWidth - kClipNumberWidth + 1;  // Where a number fits.
inline constexpr int kClipStep = 4;                                     // Columns per frame.
inline constexpr int kClipMargin = 1;   // Columns outside a number at the ends of its way.
inline constexpr int kClipLayouts = 4;  // Ways times rows.

using ClipNumber = std::array<int, kClipDigits>;  // Each 0..9, tens first.

// Where the number of a frame stands.
struct ClipPlace {
  int column = 0;  // The left edge's, 0..9.
  int row = 0;     // 0 or 1.
  bool operator==(const ClipPlace&) const = default;
};

// The place in frame 0..2 of layout 0..3: even layouts are in row 0, the first two come from the
// left.
ClipPlace PlaceOf(int layout, int frame);

// A frame, row-major, every value -1 or 1. Requires a column in 0..9 and a row in 0..1.
std::array<float, kFramePixels> RenderFrame(const ClipNumber& number, const ClipPlace& place);

// The frames of a layout, one after another.
std::array<float, kClipPixels> RenderClip(const ClipNumber& number, int layout);

// Parses exactly "clip dd". kInvalidArgument for any other text.
absl::StatusOr<ClipNumber> ParseClipPrompt(std::string_view text);

}  // namespace oxbow::worlds
