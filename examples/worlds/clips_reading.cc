// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/clips_reading.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace oxbow::worlds {
namespace {

constexpr int kClipCellPixels = kClipHeight * kGlyphWidth;
constexpr int kOutsidePixels = kFramePixels - kClipDigits * kClipCellPixels;

// The best digit in the cell whose left edge is `left`.
struct Cell {
  int digit = kUnreadable;
  int error = std::numeric_limits<int>::max();  // Sum over the cell, in 1 / 255.
  int light = 0;                                // Likewise.
};

Cell ReadCell(std::span<const uint8_t> pixels, int left, int offset) {
  Cell best;
  for (int row = 0; row < kClipHeight; ++row) {
    for (int column = 0; column < kGlyphWidth; ++column) {
      best.light += pixels[row * kClipWidth + left + column];
    }
  }
  for (int digit = 0; digit < 10; ++digit) {
    int error = best.light;
    for (int row = 0; row < kClipHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (!GlyphWhite(digit, offset, row, column)) continue;
        error += 255 - 2 * pixels[row * kClipWidth + left + column];
      }
    }
    if (error >= best.error) continue;
    best.error = error;
    best.digit = digit;
  }
  return best;
}

double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double Minority(int64_t part, int64_t whole) { return Share(std::min(part, whole - part), whole); }

}  // namespace

FrameReading ReadFrame(std::span<const uint8_t> pixels) {
  OXBOW_CHECK(pixels.size() == kFramePixels) << pixels.size() << " pixels";
  int light = 0;
  for (const uint8_t pixel : pixels) light += pixel;
  FrameReading reading;
  int best = std::numeric_limits<int>::max();
  for (int offset = 0; offset < kRowOffsets; ++offset) {
    for (int column = 0; column < kClipColumns; ++column) {
      std::array<Cell, kClipDigits> cells;
      int outside = light;
      int error = 0;
      for (int i = 0; i < kClipDigits; ++i) {
        cells[i] = ReadCell(pixels, column + i * (kGlyphWidth + 1), offset);
        outside -= cells[i].light;
        error += cells[i].error;
      }
      if (error + outside >= best) continue;
      best = error + outside;
      reading.place = {.column = column, .row = offset};
      // Integer comparisons: .15 of a cell is exactly 1530, .1 of what is outside 2040.
      const bool clear = outside * 10 <= kOutsidePixels * 255;
      for (int i = 0; i < kClipDigits; ++i) {
        const bool legible = clear && cells[i].error * 100 <= 15 * kClipCellPixels * 255;
        reading.digits[i] = legible ? cells[i].digit : kUnreadable;
      }
    }
  }
  return reading;
}

int RightDigits(const FrameReading& reading, const ClipNumber& wanted) {
  int right = 0;
  for (int i = 0; i < kClipDigits; ++i) right += reading.digits[i] == wanted[i];
  return right;
}

bool Steady(std::span<const FrameReading> frames) {
  OXBOW_CHECK(frames.size() > 1) << frames.size() << " frames have no way";
  const int step = frames[1].place.column - frames[0].place.column;
  if (step == 0 || !frames[0].readable()) return false;
  for (size_t i = 1; i < frames.size(); ++i) {
    const FrameReading& before = frames[i - 1];
    const FrameReading& frame = frames[i];
    if (frame.digits != before.digits || frame.place.row != before.place.row ||
        frame.place.column != before.place.column + step) {
      return false;
    }
  }
  return true;
}

std::vector<FrameReading> ReadClip(std::span<const uint8_t> pixels) {
  OXBOW_CHECK(pixels.size() == kClipPixels) << pixels.size() << " pixels";
  std::vector<FrameReading> frames;
  for (int i = 0; i < kClipFrames; ++i) {
    frames.push_back(ReadFrame(pixels.subspan(i * kFramePixels, kFramePixels)));
  }
  return frames;
}

void ClipCounter::Add(const ClipNumber& wanted, std::span<const uint8_t> pixels) {
  const std::vector<FrameReading> frames = ReadClip(pixels);
  int right = 0;
  for (int i = 0; i < kClipFrames; ++i) {
    right += RightDigits(frames[i], wanted);
    lower_row_ += frames[i].place.row;
    for (int digit = 0; digit < kClipDigits; ++digit) {
      right_[i][digit] += frames[i].digits[digit] == wanted[digit];
      unreadable_ += frames[i].digits[digit] == kUnreadable;
    }
  }
  const double reward = static_cast<double>(right) / (kClipFrames * kClipDigits);
  ++images_;
  reward_ += reward;
  reward_squares_ += reward * reward;
  strict_ += right == kClipFrames * kClipDigits;
  speckle_ += Speckle(pixels);
  if (!Steady(frames)) return;
  ++steady_;
  leftward_ += frames[1].place.column < frames[0].place.column;
}

ClipReport ClipCounter::Report() const {
  ClipReport report;
  if (images_ == 0) return report;
  const auto count = static_cast<double>(images_);
  report.images = images_;
  report.reward = reward_ / count;
  const double variance = std::max(0.0, reward_squares_ / count - report.reward * report.reward);
  report.reward_stderr = std::sqrt(variance / count);
  report.strict = Share(strict_, images_);
  report.steady = Share(steady_, images_);
  report.speckle = speckle_ / count;
  report.unreadable = Share(unreadable_, images_ * kClipFrames * kClipDigits);
  report.minority_way_share = Minority(leftward_, steady_);
  report.minority_row_share = Minority(lower_row_, images_ * kClipFrames);
  for (int frame = 0; frame < kClipFrames; ++frame) {
    for (int digit = 0; digit < kClipDigits; ++digit) {
      report.digit_accuracy[digit] += Share(right_[frame][digit], images_ * kClipFrames);
      report.frame_accuracy[frame] += Share(right_[frame][digit], images_ * kClipDigits);
    }
  }
  return report;
}

}  // namespace oxbow::worlds
