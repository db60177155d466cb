// SPDX-License-Identifier: Apache-2.0
// Reads images of the task `digits` in the scorer's form, 8-bit grey: one cell by cell, many by
// their means.
//
// Each cell is compared with all ten glyphs at both row offsets; the least mean absolute error over
// the cell's 40 pixels (0 black, 1 white) wins. A cell with an error over .15 is unreadable. All
// arithmetic is in integers: the same bytes give the same reading on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/worlds/digits.h"

namespace oxbow::worlds {

inline constexpr int kUnreadable = -1;
inline constexpr double kReadableErrorMax = 0.15;

struct CellReading {
  int digit = kUnreadable;
  int offset = 0;    // Row offset of the best glyph, readable or not.
  double error = 1;  // Mean absolute error of the best glyph, in [0, 1].
};

struct Reading {
  std::array<CellReading, kDigitCount> cells;
  int offset = 0;  // The row offset that fits the whole image best: 0 or 1.
};

// `pixels`: kImagePixels bytes, row-major.
Reading ReadDigits(std::span<const uint8_t> pixels);

// Edit distance (insert, delete, replace) of the reading and the wanted digits, 0..3. An unreadable
// cell is a character that equals no digit.
int EditDistance(const Reading& reading, const Digits& wanted);

// Grey noise: mean of 1 - |x| with x = 2 pixel / 255 - 1. 0 for pure black and white. Requires
// pixels.
double Speckle(std::span<const uint8_t> pixels);

// Share of the least used of the row offsets among the counted readings. 1 / offsets: all are used
// equally; 0: there is one that no image uses.
class RowShare {
 public:
  explicit RowShare(int offsets = kRowOffsets) : counts_(offsets) {}
  void Add(const Reading& reading) { ++counts_[reading.offset]; }
  double minority() const;  // 0 if nothing was counted.

 private:
  std::vector<int64_t> counts_;
};

// Facts of a set of images: reward, strict reward, and what the reward does not show.
struct DigitsReport {
  int64_t images = 0;
  double reward = 0;                                    // Mean of 1 - edit distance / 3.
  double reward_stderr = 0;                             // Its standard error.
  double strict = 0;                                    // Share with all digits right.
  double speckle = 0;                                   // Mean of what Add was given.
  double unreadable = 0;                                // Share of unreadable cells.
  double minority_row_share = 0;                        // See RowShare.
  std::array<double, kDigitCount> digit_accuracy = {};  // Share of right digits per position.
};

// Counts readings of images one by one.
class DigitsCounter {
 public:
  explicit DigitsCounter(int offsets = kRowOffsets) : rows_(offsets) {}

  // `speckle`: how unclean the image is, 0 to 1.
  void Add(const Digits& wanted, const Reading& reading, double speckle);
  DigitsReport Report() const;  // All zero if nothing was added.

 private:
  int64_t images_ = 0;
  double reward_ = 0;
  double reward_squares_ = 0;
  int64_t strict_ = 0;
  double speckle_ = 0;
  int64_t unreadable_ = 0;
  std::array<int64_t, kDigitCount> right_ = {};
  RowShare rows_;
};

}  // namespace oxbow::worlds
