// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tasks/digits_reading.h"

namespace oxbow::tasks {
namespace {

std::vector<Digits> EvenNumbers() {
  std::vector<Digits> prompts;
  for (int number = 0; number < 1000; number += 2) prompts.push_back(DigitsOf(number));
  return prompts;
}

TEST(PretrainingBatchTest, AsksOnlyForItsPromptsAndLiesAsOftenAsSaid) {
  const BatchOptions options{.seed = 5, .size = 500, .caption_noise = 0.5};
  int64_t right = 0;
  int64_t lower_row = 0;
  constexpr int kSteps = 40;
  for (int step = 0; step < kSteps; ++step) {
    for (const PretrainingExample& example : PretrainingBatch(options, step, EvenNumbers())) {
      ASSERT_EQ(NumberOf(example.caption) % 2, 0);
      for (int i = 0; i < kDigitCount; ++i) right += example.caption[i] == example.drawn[i];
      lower_row += example.offset;
      ASSERT_GE(example.time, 0);
      ASSERT_LE(example.time, 1);
    }
  }
  // A replaced digit is right by chance once in ten: 1 - .5 * .9. Five standard errors.
  EXPECT_NEAR(right / (3.0 * kSteps * options.size), 0.55, 5 * std::sqrt(0.25 / 60000));
  EXPECT_NEAR(lower_row / (1.0 * kSteps * options.size), 0.5, 5 * std::sqrt(0.25 / 20000));
}

TEST(PretrainingBatchTest, TimesAreUniformAndLogitNormalInTurn) {
  const BatchOptions options{.seed = 6, .size = 20000};
  for (int64_t step : {0, 1}) {
    std::vector<double> times;
    for (const auto& example : PretrainingBatch(options, step, EvenNumbers())) {
      times.push_back(example.time);
    }
    std::sort(times.begin(), times.end());
    // Quantiles .1, .5, .9: of the uniform, and sigmoid(.2 + 1.2 z) with z = -1.2816, 0, 1.2816.
    const std::vector<double> expected = step == 0 ? std::vector<double>{0.1, 0.5, 0.9}
                                                   : std::vector<double>{0.2079, 0.5498, 0.8504};
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(times[2000 + 8000 * i], expected[i], 0.015) << step;
  }
}

TEST(PretrainingBatchTest, IsAFunctionOfSeedAndStep) {
  const auto numbers = [](uint64_t seed, int64_t step) {
    std::vector<std::array<float, 3>> drawn;
    for (const auto& e : PretrainingBatch({.seed = seed}, step, EvenNumbers())) {
      drawn.push_back({1.0F * NumberOf(e.caption), 1.0F * NumberOf(e.drawn), e.time});
    }
    return drawn;
  };
  EXPECT_EQ(numbers(1, 9), numbers(1, 9));
  EXPECT_NE(numbers(1, 9), numbers(1, 10));
  EXPECT_NE(numbers(1, 9), numbers(2, 9));
}

TEST(DigitsReportTest, CountsWhatImagesShow) {
  const auto pixels = [](int number, int offset) {
    std::vector<uint8_t> bytes;
    for (const float x : RenderDigits(DigitsOf(number), offset)) bytes.push_back(x > 0 ? 255 : 0);
    return bytes;
  };
  DigitsCounter counter;
  const auto add = [&](const std::vector<uint8_t>& image) {
    counter.Add(DigitsOf(473), ReadDigits(image), Speckle(image));
  };
  EXPECT_EQ(counter.Report().images, 0);
  add(pixels(473, 0));
  add(pixels(479, 0));
  add(pixels(279, 1));
  add(std::vector<uint8_t>(kImagePixels, 128));
  const DigitsReport report = counter.Report();
  EXPECT_EQ(report.images, 4);
  EXPECT_DOUBLE_EQ(report.reward, (1 + 2.0 / 3 + 1.0 / 3 + 0) / 4);
  EXPECT_DOUBLE_EQ(report.strict, 0.25);
  EXPECT_DOUBLE_EQ(report.unreadable, 0.25);
  EXPECT_DOUBLE_EQ(report.minority_row_share, 0.25);
  EXPECT_EQ(report.digit_accuracy, (std::array<double, 3>{0.5, 0.75, 0.25}));
  EXPECT_NEAR(report.speckle, 0.25, 0.002);
  EXPECT_NEAR(report.reward_stderr, std::sqrt(5.0 / 36 / 4), 1e-12);
}

}  // namespace
}  // namespace oxbow::tasks
