// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/plates.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/first_part.h"
#include "examples/worlds/plate_glyphs.h"

namespace oxbow::worlds {
namespace {

constexpr std::string_view kPlatePrefix = "text \"";
constexpr std::string_view kSuffix = "\"";

}  // namespace

uint8_t PlateGrey(int digit, int offset, int row, int column) {
  OXBOW_CHECK(digit >= 0 && digit <= 9 && offset >= 0 && offset < kPlateOffsets)
      << "digit " << digit << ", offset " << offset;
  const int glyph_row = row - kPlateTopRow - offset;
  if (glyph_row < 0 || glyph_row >= kPlateGlyphSide) return 255;
  return kPlateGlyphs[digit][glyph_row][column];
}

std::array<uint8_t, kPlatePixels> PlateBytes(const Digits& digits, int offset) {
  std::array<uint8_t, kPlatePixels> image;
  image.fill(255);
  for (int cell = 0; cell < kDigitCount; ++cell) {
    for (int row = 0; row < kPlateHeight; ++row) {
      for (int column = 0; column < kPlateGlyphSide; ++column) {
        image[row * kPlateWidth + kPlateColumns[cell] + column] =
            PlateGrey(digits[cell], offset, row, column);
      }
    }
  }
  return image;
}

absl::StatusOr<Digits> ParsePlatePrompt(std::string_view text) {
  const bool framed = text.size() == kPlatePrefix.size() + kDigitCount + kSuffix.size() &&
                      text.starts_with(kPlatePrefix) && text.ends_with(kSuffix);
  Digits digits = {};
  bool right = framed;
  for (int i = 0; i < kDigitCount && right; ++i) {
    const char c = text[kPlatePrefix.size() + i];
    right = absl::ascii_isdigit(static_cast<unsigned char>(c));
    digits[i] = c - '0';
  }
  if (right) return digits;
  return absl::InvalidArgumentError(
      absl::StrCat("prompt is not \"text\" and three digits in quotation marks, as text \"473\": ",
                   FirstPart(std::string(text), 80)));
}

}  // namespace oxbow::worlds
