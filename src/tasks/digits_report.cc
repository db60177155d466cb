#include "tasks/digits_report.h"

#include <algorithm>
#include <cmath>

namespace oxbow::tasks {

void DigitsCounter::Add(const Digits& wanted, std::span<const uint8_t> pixels) {
  const Reading reading = ReadDigits(pixels);
  const int distance = EditDistance(reading, wanted);
  const double reward = 1 - std::min(distance, 3) / 3.0;
  ++images_;
  reward_ += reward;
  reward_squares_ += reward * reward;
  strict_ += distance == 0;
  speckle_ += Speckle(pixels);
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

}  // namespace oxbow::tasks
