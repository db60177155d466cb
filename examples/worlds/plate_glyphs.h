// SPDX-License-Identifier: Apache-2.0
// The digits of the task `plates` as pixels (generated; tools/make_plate_glyphs.py).
#pragma once

#include <cstdint>

namespace oxbow::worlds {

inline constexpr int kPlateGlyphSide = 10;  // Rows and columns of a digit.

// Grey levels [digit][row][column], 0 black to 255 white.
extern const uint8_t kPlateGlyphs[10][kPlateGlyphSide][kPlateGlyphSide];

}  // namespace oxbow::worlds
