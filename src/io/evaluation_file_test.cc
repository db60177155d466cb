// SPDX-License-Identifier: Apache-2.0
#include "io/evaluation_file.h"

#include <gtest/gtest.h>

#include <cmath>

namespace oxbow::io {
namespace {

TEST(EvaluationFileTest, WhatIsWrittenReadsBack) {
  const std::vector<EvaluatedPicture> pictures = {
      {"digits 473", 0.1 + 0.2, true, 20, 8, true, {{"digits_ocr", 1.0}, {"digits_row", 0.0}}},
      {"a \"cat\"\n\xe2\x82\xac on\ta mat", -3.5, std::nullopt, 512, 512, false, {}}};
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

}  // namespace
}  // namespace oxbow::io
