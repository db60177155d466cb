// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/digits_reading.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace oxbow::worlds {
namespace {

constexpr int kCellPixels = kImageHeight * kGlyphWidth;
constexpr int kErrorUnit = kCellPixels * 255;  // The integer that stands for an error of 1.

int CellError(std::span<const uint8_t> pixels, int cell, int digit, int offset) {
  int error = 0;
  for (int row = 0; row < kImageHeight; ++row) {
    for (int column = 0; column < kGlyphWidth; ++column) {
      const int pixel = pixels[row * kImageWidth + kCellColumns[cell] + column];
      error += GlyphWhite(digit, offset, row, column) ? 255 - pixel : pixel;
    }
  }
  return error;
}

}  // namespace

Reading ReadDigits(std::span<const uint8_t> pixels) {
  OXBOW_CHECK(pixels.size() == kImagePixels) << pixels.size() << " pixels";
  Reading reading;
  std::array<int, kRowOffsets> row_error = {};
  for (int cell = 0; cell < kDigitCount; ++cell) {
    int best = std::numeric_limits<int>::max();
    CellReading& read = reading.cells[cell];
    for (int offset = 0; offset < kRowOffsets; ++offset) {
      int best_here = std::numeric_limits<int>::max();
      for (int digit = 0; digit < 10; ++digit) {
        const int error = CellError(pixels, cell, digit, offset);
        best_here = std::min(best_here, error);
        if (error < best) {
          best = error;
          read.digit = digit;
          read.offset = offset;
        }
      }
      row_error[offset] += best_here;
    }
    read.error = static_cast<double>(best) / kErrorUnit;
    // An integer comparison: .15 of 10200 is exactly 1530.
    if (best * 100 > 15 * kErrorUnit) read.digit = kUnreadable;
  }
  reading.offset = row_error[1] < row_error[0] ? 1 : 0;
  return reading;
}

int EditDistance(const Reading& reading, const Digits& wanted) {
  std::array<std::array<int, kDigitCount + 1>, kDigitCount + 1> cost = {};
  for (int i = 0; i <= kDigitCount; ++i) {
    for (int j = 0; j <= kDigitCount; ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const int replace = reading.cells[i - 1].digit == wanted[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + replace});
    }
  }
  return cost[kDigitCount][kDigitCount];
}

double Speckle(std::span<const uint8_t> pixels) {
  OXBOW_CHECK(!pixels.empty()) << "speckle of no pixels";
  int64_t sum = 0;
  for (const uint8_t pixel : pixels) sum += 255 - std::abs(2 * static_cast<int>(pixel) - 255);
  return static_cast<double>(sum) / (255.0 * static_cast<double>(pixels.size()));
}

double RowShare::minority() const {
  const int64_t total = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  if (total == 0) return 0;
  const int64_t least = *std::min_element(counts_.begin(), counts_.end());
  return static_cast<double>(least) / static_cast<double>(total);
}

void DigitsCounter::Add(const Digits& wanted, const Reading& reading, double speckle) {
  const int distance = EditDistance(reading, wanted);
  const double reward = 1 - std::min(distance, 3) / 3.0;
  ++images_;
  reward_ += reward;
  reward_squares_ += reward * reward;
  strict_ += distance == 0;
  speckle_ += speckle;
  for (int i = 0; i < kDigitCount; ++i) {
    right_[i] += reading.cells[i].digit == wanted[i];
    unreadable_ += reading.cells[i].digit == kUnreadable;
  }
  rows_.Add(reading);
}

DigitsReport DigitsCounter::Report() const {
  DigitsReport report;
  if (images_ == 0) return report;
  const auto count = static_cast<double>(images_);
  report.images = images_;
  report.reward = reward_ / count;
  const double variance = std::max(0.0, reward_squares_ / count - report.reward * report.reward);
  report.reward_stderr = std::sqrt(variance / count);
  report.strict = static_cast<double>(strict_) / count;
  report.speckle = speckle_ / count;
  report.unreadable = static_cast<double>(unreadable_) / (count * kDigitCount);
  report.minority_row_share = rows_.minority();
  for (int i = 0; i < kDigitCount; ++i) {
    report.digit_accuracy[i] = static_cast<double>(right_[i]) / count;
  }
  return report;
}

}  // namespace oxbow::worlds
