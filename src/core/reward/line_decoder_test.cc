// SPDX-License-Identifier: Apache-2.0
#include "core/reward/line_decoder.h"

#include "gtest/gtest.h"

namespace oxbow::reward {
namespace {

const std::vector<std::string> kCharacters = {"blank", "a", "b", "\u4f60", " "};

LineText Decode(const std::vector<int64_t>& classes, const std::vector<float>& probabilities) {
  return DecodeLine(classes, probabilities, kCharacters);
}

TEST(LineDecoderTest, RepeatsAreOneCharacterUnlessABlankStandsBetween) {
  const std::vector<float> sure(9, 1);
  EXPECT_EQ(Decode({0, 1, 1, 0, 1, 2, 2, 3, 4}, sure).text, "aab\u4f60 ");
  EXPECT_EQ(Decode({1, 1, 1, 1, 1, 1, 1, 1, 1}, sure).text, "a");
  EXPECT_EQ(Decode({1, 2, 1, 2, 1, 2, 1, 2, 1}, sure).text, "ababababa");
}

TEST(LineDecoderTest, ConfidenceIsTheMeanOfTheFirstStepsOfCharacters) {
  const LineText line = Decode({0, 1, 1, 0, 2}, {0.9f, 0.5f, 0.1f, 0.9f, 0.25f});
  EXPECT_EQ(line.text, "ab");
  EXPECT_DOUBLE_EQ(line.confidence, 0.375);
}

TEST(LineDecoderTest, NothingIsReadWithoutConfidence) {
  EXPECT_EQ(Decode({0, 0, 0}, {1, 1, 1}).text, "");
  EXPECT_EQ(Decode({0, 0, 0}, {1, 1, 1}).confidence, 0);
  EXPECT_EQ(Decode({}, {}).confidence, 0);
}

TEST(LineDecoderTest, CharactersAreAsManyAsTheClasses) {
  EXPECT_EQ(*ParseCharacters(R"({"character_list": ["blank", "a"], "size": 3})", 2),
            (std::vector<std::string>{"blank", "a"}));
  const auto refusal = [](const char* json) {
    const absl::Status status = ParseCharacters(json, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal(R"({"character_list": ["blank"]})"),
            "has 1 characters, but the recogniser tells 2 apart");
  EXPECT_EQ(refusal(R"({"character_list": ["blank", 7]})"),
            "character_list is not a list of strings");
  EXPECT_EQ(refusal("{}"), "character_list is not a list of strings");
  EXPECT_EQ(refusal("[1"), "is not a JSON object");
}

}  // namespace
}  // namespace oxbow::reward
