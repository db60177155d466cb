// Measures a set of images of the task `digits`: reward, strict reward, and what the reward does
// not show.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tasks/digits.h"
#include "tasks/digits_reading.h"

namespace oxbow::tasks {

struct DigitsReport {
  int64_t images = 0;
  double reward = 0;              // Mean of 1 - edit distance / 3.
  double reward_stderr = 0;       // Its standard error.
  double strict = 0;              // Share with all digits right.
  double speckle = 0;             // Mean grey noise; see Speckle.
  double unreadable = 0;          // Share of unreadable cells.
  double minority_row_share = 0;  // .5: both rows are used equally; 0: only one.
  std::array<double, kDigitCount> digit_accuracy = {};  // Share of right digits per position.
};

// Counts images one by one.
class DigitsCounter {
 public:
  // `pixels`: kImagePixels bytes.
  void Add(const Digits& wanted, std::span<const uint8_t> pixels);
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

}  // namespace oxbow::tasks
