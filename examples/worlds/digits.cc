// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/digits.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/first_part.h"
#include "base/status_macros.h"

namespace oxbow::worlds {
namespace {

// Any two glyphs differ in at least 9 pixels of the 40 of a cell, whatever their offsets.
constexpr const char* kFont[10][kGlyphHeight] = {
    {".###.", "#...#", "#...#", "#...#", "#...#", "#...#", ".###."},
    {"..#..", ".##..", "..#..", "..#..", "..#..", "..#..", "#####"},
    {".###.", "#...#", "....#", "...#.", "..#..", ".#...", "#####"},
    {"#####", "...#.", "..#..", "...#.", "....#", "#...#", ".###."},
    {"#...#", "#...#", "#...#", "#####", "....#", "....#", "....#"},
    {"#####", "#....", "####.", "....#", "....#", "....#", "####."},
    {"..##.", ".#...", "#....", "####.", "#...#", "#...#", ".###."},
    {"#####", "....#", "...#.", "..#..", ".#...", ".#...", ".#..."},
    {".###.", "#...#", ".#.#.", "..#..", ".#.#.", "#...#", ".###."},
    {".###.", "#...#", "#...#", ".####", "....#", "...#.", ".##.."},
};

constexpr std::string_view kPrefix = "text ";

}  // namespace

bool GlyphWhite(int digit, int offset, int row, int column) {
  OXBOW_CHECK(digit >= 0 && digit <= 9 && offset >= 0 && offset < kRowOffsets)
      << "digit " << digit << ", offset " << offset;
  const int glyph_row = row - offset;
  if (glyph_row < 0 || glyph_row >= kGlyphHeight) return false;
  return kFont[digit][glyph_row][column] == '#';
}

std::array<float, kImagePixels> RenderDigits(const Digits& digits, int offset) {
  std::array<float, kImagePixels> image;
  image.fill(-1.0F);
  for (int cell = 0; cell < kDigitCount; ++cell) {
    for (int row = 0; row < kImageHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (GlyphWhite(digits[cell], offset, row, column)) {
          image[row * kImageWidth + kCellColumns[cell] + column] = 1.0F;
        }
      }
    }
  }
  return image;
}

Digits DigitsOf(int number) {
  OXBOW_CHECK(number >= 0 && number <= 999) << "number " << number;
  return {number / 100, number / 10 % 10, number % 10};
}

int NumberOf(const Digits& digits) { return digits[0] * 100 + digits[1] * 10 + digits[2]; }

absl::StatusOr<Digits> ParseDigitsPrompt(std::string_view text) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt is not \"text\" and three digits, as \"text 473\": ",
                     FirstPart(std::string(text), 80)));
  };
  if (text.size() != kPrefix.size() + kDigitCount || text.substr(0, kPrefix.size()) != kPrefix) {
    return refuse();
  }
  Digits digits;
  for (int i = 0; i < kDigitCount; ++i) {
    const char c = text[kPrefix.size() + i];
    if (c < '0' || c > '9') return refuse();
    digits[i] = c - '0';
  }
  return digits;
}

}  // namespace oxbow::worlds
