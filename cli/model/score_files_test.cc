// SPDX-License-Identifier: Apache-2.0
#include "cli/model/score_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "examples/worlds/digits.h"
#include "examples/worlds/digits_ocr.h"
#include "io/image.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

Image8 PictureOf(int number) {
  Image8 image{.width = 20, .height = 8, .channels = 1, .pixels = {}};
  for (const float x : worlds::RenderDigits(worlds::DigitsOf(number), 1)) {
    image.pixels.push_back(x > 0 ? 255 : 0);
  }
  return image;
}

TEST(ScoreFilesTest, EachFileHasItsScoreOrItsError) {
  const oxbow::testing::ScopedDirectory directory;
  const std::string right = directory.path() / "473.png";
  const std::string wrong = directory.path() / "479.png";
  const std::string text = directory.path() / "text.png";
  ASSERT_TRUE(WriteFileAtomically(right, io::EncodePng(PictureOf(473))).ok());
  ASSERT_TRUE(WriteFileAtomically(wrong, io::EncodePng(PictureOf(479))).ok());
  ASSERT_TRUE(WriteFileAtomically(text, "no picture").ok());
  v1::Prompt prompt;
  prompt.set_text("text 473");
  const auto scorer = worlds::MakeDigitsOcr();
  const auto scores =
      ScoreFiles(*scorer, prompt, {right, text, wrong, directory.path() / "absent.png"});
  ASSERT_EQ(scores.size(), 4);
  EXPECT_EQ(scores[0].score.value().value, 1);
  EXPECT_FALSE(scores[1].score.ok());
  EXPECT_NEAR(scores[2].score.value().value, 2.0 / 3, 1e-12);
  EXPECT_EQ(scores[3].score.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ScoresText(scorer->facts(), scores, false), HasSubstr("no score"));
  EXPECT_THAT(ScoresText(scorer->facts(), scores, true),
              HasSubstr(R"({"reward":"digits_ocr","identity":"digits_ocr/1","scores":[{"image":)"));
}

TEST(ScoreFilesTest, AJpegIsReadAndATruncatedOneHasNoScore) {
  const oxbow::testing::ScopedDirectory directory;
  const std::string jpeg = io::EncodeJpeg(PictureOf(473), 95);
  const std::string whole = directory.path() / "473.jpg";
  const std::string half = directory.path() / "half.jpg";
  ASSERT_TRUE(WriteFileAtomically(whole, jpeg).ok());
  ASSERT_TRUE(WriteFileAtomically(half, jpeg.substr(0, jpeg.size() - 40)).ok());
  v1::Prompt prompt;
  prompt.set_text("text 473");
  const auto scorer = worlds::MakeDigitsOcr();
  const auto scores = ScoreFiles(*scorer, prompt, {half, whole});
  ASSERT_EQ(scores.size(), 2);
  EXPECT_EQ(scores[0].score.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(scores[0].score.status().message()), HasSubstr("half.jpg"));
  ASSERT_TRUE(scores[1].score.ok()) << scores[1].score.status();
  EXPECT_EQ(scores[1].score->value, 1);
}

TEST(ScoreFilesTest, ANoteIsShown) {
  const std::vector<FileScore> scores = {
      {"a.png", reward::Score{.value = 0.5, .note = "NEW YORK"}}};
  EXPECT_EQ(ScoresText({.name = "ocr"}, scores, false), "0.5         a.png  NEW YORK\n");
  EXPECT_EQ(
      ScoresText({.name = "ocr"}, scores, true),
      R"({"reward":"ocr","identity":"","scores":[{"image":"a.png","score":0.5,"note":"NEW YORK"}]})"
      "\n");
}

}  // namespace
}  // namespace oxbow::cli
