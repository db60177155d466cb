// SPDX-License-Identifier: Apache-2.0
#include "rewards/ocr_scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/reward/shown_items.h"
#include "examples/worlds/plates.h"
#include "rewards/tesseract_reader.h"

namespace oxbow::rewards {
namespace {

using reward::Item;
using reward::ScoreOne;
using ::testing::HasSubstr;

Image8 PlateOf(int number) {
  const auto bytes = worlds::PlateBytes(worlds::DigitsOf(number), 1);
  return {.width = worlds::kPlateWidth,
          .height = worlds::kPlateHeight,
          .channels = 1,
          .pixels = {bytes.begin(), bytes.end()}};
}

std::unique_ptr<TextReader> Tesseract(const TesseractSettings& settings = {}) {
  auto reader = TesseractReader::Create(settings);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

std::unique_ptr<reward::Scorer> Ocr(const std::string& variant = "flow_grpo") {
  auto scorer = MakeOcr({.variant = variant}, Tesseract());
  EXPECT_TRUE(scorer.ok()) << scorer.status();
  return *std::move(scorer);
}

TEST(OcrScorerTest, RewardIsOneMinusTheShareOfEditsAndTheNoteIsTheText) {
  const auto ocr = Ocr();
  const struct {
    int drawn;
    double reward;
  } cases[] = {{473, 1}, {479, 2.0 / 3}, {737, 1.0 / 3}, {258, 0}};
  for (const auto& c : cases) {
    const auto score = ScoreOne(*ocr, "text \"473\"", "", PlateOf(c.drawn));
    ASSERT_TRUE(score.ok()) << score.status();
    EXPECT_DOUBLE_EQ(score->value, c.reward) << c.drawn;
    EXPECT_EQ(score->note, std::to_string(c.drawn));
  }
}

TEST(OcrScorerTest, MetadataNamesTheTextBeforeThePromptDoes) {
  const auto score = ScoreOne(*Ocr(), "text \"111\"", R"({"text": "473"})", PlateOf(473));
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->value, 1);
}

TEST(OcrScorerTest, PromptWithoutQuotationIsAnErrorOrTheWholePromptByVariant) {
  EXPECT_EQ(ScoreOne(*Ocr(), "473", "", PlateOf(473)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScoreOne(*Ocr("flow_factory"), "473", "", PlateOf(473))->value, 1);
  EXPECT_NE(Ocr()->facts().identity, Ocr("flow_factory")->facts().identity);
  const absl::Status unknown = MakeOcr({.variant = "paddle"}, Tesseract()).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("flow_grpo, flow_factory"));
}

// flow_grpo scores 0 where its engine fails.
// Promise: The OCR engine makes no score up. A picture that Tesseract cannot read in time, or at
// all, has no score, nor has one for which the networks of PP-OCRv5 give numbers that are not
// finite, or regions that no text has. A reading depends on picture and settings alone, whatever
// was read before and by how many threads. Each change of engine, data or settings that may change
// a score changes the reward's identity.
TEST(OcrScorerTest, WhatCannotBeReadHasNoScore) {
  Image8 truncated = PlateOf(473);
  truncated.pixels.pop_back();
  EXPECT_EQ(ScoreOne(*Ocr(), "text \"473\"", "", truncated).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto late = MakeOcr({}, Tesseract({.deadline = absl::Milliseconds(1), .engines = 1}));
  ASSERT_TRUE(late.ok()) << late.status();
  Image8 noise{.width = 512, .height = 512, .channels = 1, .pixels = {}};
  for (int i = 0; i < 512 * 512; ++i)
    noise.pixels.push_back((i / 7 + i / 512 * 5) % 11 < 5 ? 0 : 255);
  EXPECT_EQ(ScoreOne(**late, "text \"473\"", "", noise).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(OcrScorerTest, ABatchIsItsItems) {
  const auto ocr = Ocr();
  std::vector<Image8> images;
  std::vector<Item> items;
  for (int i = 0; i < 12; ++i) images.push_back(PlateOf(100 + 37 * i));
  images[5].pixels.pop_back();
  for (const Image8& image : images) {
    items.push_back({.prompt = "text \"174\"", .metadata_json = "", .frames = {&image, 1}});
  }
  const auto scores = ocr->ScoreBatch(items);
  ASSERT_EQ(scores.size(), items.size());
  for (int i = 0; i < 12; ++i) {
    const auto alone = ScoreOne(*ocr, "text \"174\"", "", images[i]);
    ASSERT_EQ(scores[i].status(), alone.status()) << i;
    if (!alone.ok()) continue;
    EXPECT_EQ(scores[i]->value, alone->value) << i;
    EXPECT_EQ(scores[i]->note, alone->note) << i;
  }
  EXPECT_FALSE(scores[5].ok());
  EXPECT_EQ(scores[2]->value, 1);
}

// Frames 0 and 4 of five are shown to it, and only frames with a reward of their own count.
TEST(OcrScorerTest, EveryFourthFrameOfAVideoIsRead) {
  const auto ocr = Ocr();
  ASSERT_TRUE(ocr->facts().videos);
  const auto value = [&](std::vector<int> numbers) {
    std::vector<Image8> frames;
    for (const int number : numbers) frames.push_back(PlateOf(number));
    const Item video{.prompt = "text \"473\"", .metadata_json = "", .frames = frames};
    const reward::ShownItems shown(ocr->facts(), {&video, 1});
    return shown.Combine(ocr->ScoreBatch(shown.items())).front()->value;
  };
  EXPECT_DOUBLE_EQ(value({473, 258, 258, 258, 479}), (1 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(value({473, 258, 258, 258, 258}), 1);
  EXPECT_DOUBLE_EQ(value({258, 473, 473, 473, 258}), 0);
  EXPECT_DOUBLE_EQ(value({258, 473}), 0) << "one frame is read, by the rule of videos";
}

}  // namespace
}  // namespace oxbow::rewards
