// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/plates_reading.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "base/check.h"
#include "examples/worlds/plate_glyphs.h"

namespace oxbow::worlds {
namespace {

constexpr int kPlateErrorUnit = kPlateHeight * kPlateGlyphSide * 255;  // An error of 1.

struct Match {
  int digit = 0;
  int offset = 0;
  int error = std::numeric_limits<int>::max();
};

int PlateError(std::span<const uint8_t> pixels, int cell, int digit, int offset) {
  int error = 0;
  for (int row = 0; row < kPlateHeight; ++row) {
    for (int column = 0; column < kPlateGlyphSide; ++column) {
      const int pixel = pixels[row * kPlateWidth + kPlateColumns[cell] + column];
      error += std::abs(pixel - PlateGrey(digit, offset, row, column));
    }
  }
  return error;
}

// The best digit of a cell at one offset.
Match BestAt(std::span<const uint8_t> pixels, int cell, int offset) {
  Match best;
  for (int digit = 0; digit < 10; ++digit) {
    const int error = PlateError(pixels, cell, digit, offset);
    if (error < best.error) best = {digit, offset, error};
  }
  return best;
}

struct Matches {
  std::array<Match, kDigitCount> cells;
  int offset = 0;  // That fits the whole image best.
};

Matches MatchPlate(std::span<const uint8_t> pixels) {
  OXBOW_CHECK(pixels.size() == kPlatePixels) << pixels.size() << " pixels";
  Matches found;
  int least = std::numeric_limits<int>::max();
  for (int offset = 0; offset < kPlateOffsets; ++offset) {
    int row_error = 0;
    for (int cell = 0; cell < kDigitCount; ++cell) {
      const Match match = BestAt(pixels, cell, offset);
      row_error += match.error;
      if (match.error < found.cells[cell].error) found.cells[cell] = match;
    }
    if (row_error < least) {
      least = row_error;
      found.offset = offset;
    }
  }
  return found;
}

}  // namespace

Reading ReadPlate(std::span<const uint8_t> pixels) {
  const Matches found = MatchPlate(pixels);
  Reading reading;
  reading.offset = found.offset;
  for (int cell = 0; cell < kDigitCount; ++cell) {
    const Match& match = found.cells[cell];
    const bool readable = match.error * 100 <= kPlateErrorPercentMax * kPlateErrorUnit;
    reading.cells[cell] = {.digit = readable ? match.digit : kUnreadable,
                           .offset = match.offset,
                           .error = static_cast<double>(match.error) / kPlateErrorUnit};
  }
  return reading;
}

double PlateDust(std::span<const uint8_t> pixels) {
  const Matches found = MatchPlate(pixels);
  // The margin outside the cells, the first and the last column, is white.
  int error = 0;
  for (int row = 0; row < kPlateHeight; ++row) {
    error += 2 * 255 - pixels[row * kPlateWidth] - pixels[row * kPlateWidth + kPlateWidth - 1];
  }
  for (const Match& match : found.cells) error += match.error;
  return static_cast<double>(error) / (kPlatePixels * 255.0);
}

}  // namespace oxbow::worlds
