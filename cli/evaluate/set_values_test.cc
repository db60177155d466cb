// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/evaluate/evaluation_table.h"
#include "run/prompt.h"

namespace oxbow::cli {
namespace {

// The first byte of a picture; 0 has no score.
class FirstByte final : public reward::PictureScorer {
 public:
  FirstByte() : PictureScorer({.name = "first_byte", .identity = "first_byte/1"}) {}
  absl::StatusOr<reward::Score> ScorePicture(std::string_view /*prompt*/, std::string_view /*json*/,
                                             const Image8& image) const override {
    if (image.pixels[0] == 0) return absl::InvalidArgumentError("black");
    return reward::Score{.value = static_cast<double>(image.pixels[0])};
  }
};

Image8 Dot(int value) { return {1, 1, 1, {static_cast<uint8_t>(value)}}; }

std::vector<SetPrompt> Prompts(size_t count) {
  std::vector<SetPrompt> prompts;
  for (size_t i = 0; i < count; ++i) prompts.push_back({run::MakePrompt("p", ""), "", i, i});
  return prompts;
}

// Two pictures of each prompt, n and n + 2; of prompt 0 the first is black.
absl::StatusOr<std::vector<Pictures>> TwoOfEach(const std::vector<SetPrompt>& prompts, size_t first,
                                                size_t last) {
  std::vector<Pictures> pictures;
  for (size_t i = first; i < last; ++i) {
    const auto n = static_cast<int>(prompts[i].number);
    pictures.push_back({{Dot(n)}, {Dot(n + 2)}});
  }
  return pictures;
}

std::vector<std::unique_ptr<reward::Scorer>> Scorers() {
  std::vector<std::unique_ptr<reward::Scorer>> scorers;
  scorers.push_back(std::make_unique<FirstByte>());
  return scorers;
}

// Promise: Numbers of a report are those of its pictures. A prompt's value is the mean over its
// scored pictures, however they are cut into batches; a picture without a score is counted and is
// no number. Intervals are over prompts, repeatable, and paired where two models are compared.
// Exported pictures give the values of the model that drew them.
TEST(EvaluationTest, APromptIsTheMeanOfItsScoredPicturesWhateverTheChunk) {
  for (const size_t chunk : {1, 2, 100}) {
    const auto evaluation = Evaluate(Prompts(5), chunk, "model", TwoOfEach, Scorers());
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    const RewardValues& values = evaluation->rewards.at(0);
    EXPECT_EQ(values.identity, "first_byte/1");
    EXPECT_THAT(values.by_prompt,
                ::testing::ElementsAre(2.0, 2.0, 3.0, 4.0, 5.0));  // One picture of prompt 0.
    EXPECT_EQ(values.failed, 1u);
    EXPECT_EQ(values.failure, "first_byte: black");
  }
}

TEST(EvaluationTest, APromptWithoutAnyScoreHasNoValue) {
  const auto black = [](const std::vector<SetPrompt>&, size_t first, size_t last) {
    return absl::StatusOr<std::vector<Pictures>>(
        std::vector<Pictures>(last - first, Pictures{{Dot(0)}}));
  };
  const auto evaluation = Evaluate(Prompts(2), 8, "model", black, Scorers());
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(evaluation->rewards[0].by_prompt[0], std::nullopt);
  EXPECT_EQ(evaluation->failed(), 2u);
}

TEST(EvaluationTest, PicturesThatDoNotComeAreTheError) {
  const auto none = [](const std::vector<SetPrompt>&, size_t, size_t) {
    return absl::StatusOr<std::vector<Pictures>>(absl::NotFoundError("no file"));
  };
  EXPECT_EQ(Evaluate(Prompts(2), 8, "folder", none, Scorers()).status().message(), "no file");
}

}  // namespace
}  // namespace oxbow::cli
