// A font of 3x5 pixels for labels on contact sheets: digits, letters (upper case for both cases)
// and little punctuation; anything else is blank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace oxbow::io {

inline constexpr int kGlyphWidth = 3;
inline constexpr int kGlyphHeight = 5;

// One row per entry from the top; bit 2 is the left pixel.
using Glyph = std::array<uint8_t, kGlyphHeight>;

Glyph GlyphOf(char character);

inline bool IsInked(const Glyph& glyph, int x, int y) {
  return (glyph[static_cast<size_t>(y)] >> (kGlyphWidth - 1 - x)) & 1;
}

}  // namespace oxbow::io
