// Reads a picture of the world `digits` as a scorer sees it: 8-bit grey, cell by cell.
//
// Each cell is compared with all ten glyphs at both row offsets; the least mean absolute error over
// the cell's 40 pixels (0 black, 1 white) wins. An error over .15 is unreadable. All in integers:
// the same bytes read the same everywhere.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/task/digits.h"

namespace oxbow::task {

inline constexpr int kUnreadable = -1;
inline constexpr double kReadableErrorMax = 0.15;

struct CellReading {
  int digit = kUnreadable;
  int offset = 0;    // Of the best glyph, readable or not.
  double error = 1;  // Mean absolute error of the best glyph, in [0, 1].
};

struct Reading {
  std::array<CellReading, kDigitCount> cells;
  int offset = 0;  // The row that fits the whole picture best: 0 or 1.
};

// `pixels`: kPicturePixels bytes, row-major.
Reading ReadDigits(std::span<const uint8_t> pixels);

// Edit distance (insert, delete, replace) of the reading and the wanted digits, 0..3. An unreadable
// cell is a character that equals no digit.
int EditDistance(const Reading& reading, const Digits& wanted);

// Grey dust: mean of 1 - |x| with x = 2 pixel / 255 - 1. 0 for pure black and white. Requires
// pixels.
double Speckle(std::span<const uint8_t> pixels);

// Share of the less used of the two rows among readings counted so far; .5 is full diversity, 0
// means that every picture stands in the same row.
class RowShare {
 public:
  void Add(const Reading& reading) { ++counts_[reading.offset]; }
  double minority() const;  // 0 if nothing was counted.

 private:
  std::array<int64_t, kRowOffsets> counts_ = {};
};

}  // namespace oxbow::task
