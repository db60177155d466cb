// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/clips.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/reward/shown_items.h"
#include "core/reward/synthetic_task.h"
#include "examples/worlds/clips_reading.h"
#include "examples/worlds/moving_digit_scorer.h"

namespace oxbow::worlds {
namespace {

using reward::Item;
using reward::Measure;
using reward::Scorer;
using reward::SyntheticTask;
using reward::TaskOfPrompt;

Image8 FrameOf(const ClipNumber& number, const ClipPlace& place) {
  Image8 frame{.width = 20, .height = 8, .channels = 1, .pixels = {}};
  for (const float x : RenderFrame(number, place)) frame.pixels.push_back(x > 0 ? 255 : 0);
  return frame;
}

std::vector<Image8> ClipOf(const ClipNumber& number, int layout) {
  std::vector<Image8> frames;
  for (int i = 0; i < kClipFrames; ++i) {
    frames.push_back(FrameOf(number, PlaceOf(layout, i)));
  }
  return frames;
}

// As a server shows a video to a scorer.
absl::StatusOr<double> ScoreOf(Scorer& scorer, const std::string& prompt,
                               const std::vector<Image8>& frames) {
  const Item item{.prompt = prompt, .metadata_json = {}, .frames = frames};
  const reward::ShownItems shown(scorer.facts(), {&item, 1});
  const auto scores = shown.Combine(scorer.ScoreBatch(shown.items()));
  if (!scores[0].ok()) return scores[0].status();
  return scores[0]->value;
}

double Ocr(const std::string& prompt, const std::vector<Image8>& frames) {
  return ScoreOf(*MakeClipOcr(), prompt, frames).value();
}
double SteadyOf(const std::vector<Image8>& frames) {
  return ScoreOf(*MakeClipSteady(), "clip 47", frames).value();
}

// Promise: The video demo learns its task.

TEST(ClipsTest, EveryNumberReadsBackInEveryLayout) {
  for (int number = 0; number < 100; ++number) {
    const ClipNumber digits = {number / 10, number % 10};
    const std::string prompt = absl::StrCat("clip ", digits[0], digits[1]);
    ASSERT_EQ(ParseClipPrompt(prompt).value(), digits);
    for (int layout = 0; layout < kClipLayouts; ++layout) {
      ASSERT_EQ(Ocr(prompt, ClipOf(digits, layout)), 1) << prompt << ", layout " << layout;
      ASSERT_EQ(SteadyOf(ClipOf(digits, layout)), 1) << prompt << ", layout " << layout;
    }
  }
}

// The world's clips are at three columns; the reader knows all.
TEST(ClipsTest, ANumberReadsBackAtEveryPlace) {
  for (int number = 0; number < 100; ++number) {
    for (int i = 0; i < 2 * kClipColumns; ++i) {
      const ClipPlace place = {.column = i / 2, .row = i % 2};
      const ClipNumber digits = {number / 10, number % 10};
      const auto reading = ReadFrame(FrameOf(digits, place).pixels);
      ASSERT_EQ(reading.digits, digits);
      ASSERT_EQ(reading.place, place);
    }
  }
}

// Both ways pass the same places, and neither leaves the picture.
TEST(ClipsTest, AClipDriftsByEvenStepsEitherWay) {
  EXPECT_EQ(PlaceOf(0, 0), (ClipPlace{1, 0}));
  EXPECT_EQ(PlaceOf(0, 2), (ClipPlace{9, 0}));
  EXPECT_EQ(PlaceOf(3, 0), (ClipPlace{9, 1}));
  EXPECT_EQ(PlaceOf(3, 2), (ClipPlace{1, 1}));
  std::vector<Image8> forwards = ClipOf({4, 7}, 1);
  std::reverse(forwards.begin(), forwards.end());
  EXPECT_EQ(forwards, ClipOf({4, 7}, 3));
}

TEST(ClipsTest, PromptIsClipAndTwoDigits) {
  for (const char* other :
       {"clip 4", "clip 473", "clip 4a", "Clip 47", "clip 47 ", "text 47", ""}) {
    EXPECT_FALSE(ParseClipPrompt(other).ok()) << other;
  }
  EXPECT_EQ(TaskOfPrompt("clip 47")->name(), "clip");
}

// Promise: The video demo learns its task.

TEST(ClipOcrTest, ADigitCountsAtItsPlaceAndInItsFrame) {
  const std::vector<Image8> right = ClipOf({4, 7}, 0);
  EXPECT_EQ(Ocr("clip 74", right), 0);
  EXPECT_EQ(Ocr("clip 49", right), 0.5);
  EXPECT_EQ(Ocr("clip 44", right), 0.5);
  std::vector<Image8> mixed = right;
  mixed[1] = FrameOf({0, 7}, PlaceOf(0, 1));
  EXPECT_DOUBLE_EQ(Ocr("clip 47", mixed), 5.0 / 6);
}

// Numbers that are cut, pale, flat or accompanied by a third digit.
TEST(ClipOcrTest, WhatCannotBeReadScoresNothing) {
  const Image8 right = FrameOf({4, 7}, {5, 0});
  const auto changed = [&](auto change) {
    Image8 frame = right;
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 20; ++x) frame.pixels[20 * y + x] = change(x, y);
    }
    return Ocr("clip 47", {frame});
  };
  const auto at = [&](int x, int y) { return right.pixels[20 * y + x]; };
  EXPECT_EQ(changed([&](int x, int y) { return at(x, y); }), 1);
  // Cut at the left edge: the 7 is whole, but where it stands is no place of a number.
  EXPECT_EQ(changed([&](int x, int y) { return x + 8 < 20 ? at(x + 8, y) : 0; }), 0);
  EXPECT_EQ(changed([&](int x, int y) { return at(x, y) / 4; }), 0);
  EXPECT_EQ(changed([&](int, int) { return 128; }), 0);
  EXPECT_EQ(changed([&](int, int) { return 0; }), 0);
  EXPECT_EQ(changed([&](int, int) { return 255; }), 0);
  const Image8 beside = FrameOf({7, 7}, {0, 0});
  const Image8 number = FrameOf({4, 7}, {9, 0});
  Image8 three = number;
  for (size_t i = 0; i < three.pixels.size(); ++i) {
    if (i % 20 < 5) three.pixels[i] = beside.pixels[i];
  }
  EXPECT_EQ(Ocr("clip 47", {number}), 1);
  EXPECT_EQ(Ocr("clip 47", {three}), 0);
}

// Promise: The video demo learns its task.

TEST(ClipSteadyTest, WantsOneNumberOneRowAndEvenSteps) {
  const auto clip = [](std::vector<ClipPlace> places, std::vector<ClipNumber> numbers) {
    std::vector<Image8> frames;
    for (size_t i = 0; i < places.size(); ++i) frames.push_back(FrameOf(numbers[i], places[i]));
    return SteadyOf(frames);
  };
  const ClipNumber a = {1, 2};
  const ClipNumber b = {2, 1};
  EXPECT_EQ(clip({{0, 0}, {3, 0}, {6, 0}}, {a, a, a}), 1);
  EXPECT_EQ(clip({{0, 0}, {3, 0}, {6, 0}, {9, 0}}, {a, a, a, a}), 1);
  EXPECT_EQ(clip({{9, 1}, {5, 1}, {1, 1}}, {b, b, b}), 1);
  EXPECT_EQ(clip({{0, 0}, {3, 0}, {6, 0}}, {a, b, a}), 0) << "another number";
  EXPECT_EQ(clip({{0, 0}, {3, 1}, {6, 0}}, {a, a, a}), 0) << "another row";
  EXPECT_EQ(clip({{0, 0}, {3, 0}, {7, 0}}, {a, a, a}), 0) << "uneven";
  EXPECT_EQ(clip({{1, 0}, {5, 0}, {1, 0}}, {a, a, a}), 0) << "back";
  EXPECT_EQ(clip({{5, 0}, {5, 0}, {5, 0}}, {a, a, a}), 0) << "still";
  std::vector<Image8> grey = ClipOf(a, 0);
  for (Image8& frame : grey) std::fill(frame.pixels.begin(), frame.pixels.end(), 128);
  EXPECT_EQ(SteadyOf(grey), 0) << "unreadable";
}

// Promise: The video demo learns its task.

TEST(ClipScorersTest, WrongInputIsAnErrorAndNoNumber) {
  const std::vector<Image8> right = ClipOf({4, 7}, 0);
  for (const auto& scorer : {MakeClipOcr(), MakeClipSteady()}) {
    const auto code = [&](const std::string& prompt, const std::vector<Image8>& frames) {
      return ScoreOf(*scorer, prompt, frames).status().code();
    };
    EXPECT_EQ(code("clip 47", right), absl::StatusCode::kOk);
    EXPECT_EQ(code("text 473", right), absl::StatusCode::kInvalidArgument);
    std::vector<Image8> wide = right;
    wide[2].width = 10;
    EXPECT_EQ(code("clip 47", wide), absl::StatusCode::kInvalidArgument);
    std::vector<Image8> coloured = right;
    coloured[0].channels = 3;
    EXPECT_EQ(code("clip 47", coloured), absl::StatusCode::kInvalidArgument);
    std::vector<Image8> cut = right;
    cut[1].pixels.pop_back();
    EXPECT_EQ(code("clip 47", cut), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(ScoreOf(*MakeClipSteady(), "clip 47", {right[0]}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ClipReportTest, CountsDigitsPerPlaceAndPerFrame) {
  const SyntheticTask& task = *TaskOfPrompt("clip 47");
  const auto bytes = [](const ClipNumber& number, int layout) {
    std::vector<uint8_t> pixels;
    for (const float x : RenderClip(number, layout)) pixels.push_back(x > 0 ? 255 : 0);
    return pixels;
  };
  std::vector<uint8_t> half = bytes({4, 7}, 2);
  std::fill(half.begin() + 2 * kFramePixels, half.end(), uint8_t{0});
  const auto report = task.NewReport();
  ASSERT_TRUE(report->Add("clip 47", bytes({4, 7}, 0)).ok());
  ASSERT_TRUE(report->Add("clip 47", bytes({4, 2}, 3)).ok());
  ASSERT_TRUE(report->Add("clip 47", half).ok());
  EXPECT_FALSE(report->Add("clip 47", std::vector<uint8_t>(kFramePixels)).ok());
  std::vector<double> values;
  for (const Measure& measure : report->Report()) values.push_back(measure.value);
  const double reward = (1 + 0.5 + 2.0 / 3) / 3;
  const double deviation = std::sqrt((1 + 0.25 + 4.0 / 9) / 3 - reward * reward);
  const std::vector<double> wanted = {3,        reward,  deviation / std::sqrt(3.0),
                                      1.0 / 3,                      // Strict.
                                      0,                            // Speckle.
                                      2.0 / 18,                     // Unreadable.
                                      2.0 / 3,                      // Steady.
                                      0.5,                          // The rarer way.
                                      3.0 / 9,                      // The rarer row.
                                      8.0 / 9,  5.0 / 9,            // Digits.
                                      5.0 / 6,  5.0 / 6, 3.0 / 6};  // Frames.
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-12) << i;
  EXPECT_TRUE(task.IsRight("clip 47", bytes({4, 7}, 0)).value());
  EXPECT_FALSE(task.IsRight("clip 47", half).value());
}

}  // namespace
}  // namespace oxbow::worlds
