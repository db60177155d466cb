// SPDX-License-Identifier: Apache-2.0
#include "io/evaluation_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"

namespace oxbow::io {
namespace {

TEST(EvaluationFileTest, WhatIsWrittenReadsBack) {
  const std::vector<EvaluatedPicture> pictures = {
      {.prompt = "digits 473",
       .reward = 0.1 + 0.2,
       .right = true,
       .picture = "000.png",
       .width = 20,
       .height = 8,
       .frames = 33,
       .film = "000.film.jpg",
       .film_frames = 17,
       .seed = 18446744073709551615u,
       .group = (uint64_t{1} << 63) + 1,
       .sample = 2,
       .rewards = {{"digits_ocr", 1.0}, {"digits_row", 0.0}}},
      {.prompt = "a \"cat\"\n\xe2\x82\xac on\ta mat", .reward = -3.5, .width = 512, .height = 512}};
  EXPECT_NE(FormatEvaluation(pictures).find("\"seed\":\"18446744073709551615\""), std::string::npos)
      << "a reader of doubles would round it";
  const auto read = ParseEvaluation(FormatEvaluation(pictures));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, pictures);
  EXPECT_TRUE(ParseEvaluation("")->empty());
}

TEST(EvaluationFileTest, WhatIsNotFiniteIsNullAndNotZero) {
  const auto read = ParseEvaluation(FormatEvaluation({{.prompt = "x", .reward = std::nan("")}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(std::isnan(read->front().reward));
}

TEST(EvaluationFileTest, BytesThatAreNoTextStillWrite) {
  const auto read = ParseEvaluation(FormatEvaluation({{.prompt = "\xff\xfe"}}));
  ASSERT_TRUE(read.ok()) << read.status();
}

TEST(EvaluationFileTest, AForeignLineIsNamed) {
  const auto read = ParseEvaluation("{\"prompt\":\"x\"}\n[1]\n");
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(read.status().message(), "not an evaluated picture: line 2");
}

// The file comes from a run's directory, which may be anybody's.
TEST(EvaluationFileTest, APicturesNameIsNeverAPath) {
  for (const char* const name : {"000.png", "1023.jpg", "000.film.jpg"})
    EXPECT_TRUE(IsPictureName(name)) << name;
  for (const char* const name :
       {"", "../000.png", "/000.png", "a00.png", "00.png", "000.svg", "000.png.png", "000.film.png",
        "000.film.jpg/x", "000", "eval.png"}) {
    EXPECT_FALSE(IsPictureName(name)) << name;
  }
  for (const char* const key : {"picture", "film"}) {
    EXPECT_FALSE(
        ParseEvaluation(absl::StrCat("{\"prompt\":\"x\",\"", key, "\":\"../../key.png\"}\n")).ok());
  }
}

}  // namespace
}  // namespace oxbow::io
