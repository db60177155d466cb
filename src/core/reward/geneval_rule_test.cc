// SPDX-License-Identifier: Apache-2.0
#include "core/reward/geneval_rule.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::reward {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kOfficial = GenevalVariant::kOfficial;
constexpr auto kFlowGrpo = GenevalVariant::kFlowGrpo;
constexpr int kBench = 13, kDog = 16;

GenevalPrompt Prompt(const std::string& metadata) {
  const auto prompt = ParseGenevalPrompt(metadata);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return *prompt;
}

GenevalVerdict Judge(const GenevalPrompt& prompt, const std::vector<Detection>& detections,
                     GenevalVariant variant) {
  return JudgeGeneval(prompt, detections, CountDetections(detections, prompt.tag), {}, variant);
}

Detection At(int thing, float x, float y, float score = 0.95F) {
  return {.thing = thing, .box = {x, y, x + 10, y + 10}, .score = score};
}

TEST(GenevalRuleTest, AnImageWithoutObjectsHasAScore) {
  const GenevalPrompt prompt = Prompt(R"({"include": [{"class": "bench", "count": 2}]})");
  const GenevalVerdict official = Judge(prompt, {}, kOfficial);
  EXPECT_EQ(official.score, 0);
  EXPECT_EQ(official.reason, "expected bench>=2, found 0");
  EXPECT_EQ(Judge(prompt, {}, kFlowGrpo).score, 0);
}

TEST(GenevalRuleTest, FlowGrpoPaysForParts) {
  const GenevalPrompt three = Prompt(R"({"include": [{"class": "bench", "count": 3}]})");
  std::vector<Detection> found = {At(kBench, 0, 0), At(kBench, 20, 0)};
  EXPECT_DOUBLE_EQ(Judge(three, found, kFlowGrpo).score, 1 - 1.0 / 3);
  for (int i = 0; i < 9; ++i) found.push_back(At(kBench, static_cast<float>(i), 40));
  EXPECT_DOUBLE_EQ(Judge(three, found, kFlowGrpo).score, 1 - 8.0 / 3);
  EXPECT_TRUE(Judge(three, found, kOfficial).correct);
}

TEST(GenevalRuleTest, FlowGrpoPaysForAWrongPositionToo) {
  const GenevalPrompt prompt = Prompt(
      R"({"include": [{"class": "bench", "count": 1},
                      {"class": "dog", "count": 1, "position": ["left of", 0]}]})");
  const std::vector<Detection> right = {At(kBench, 100, 0), At(kDog, 0, 0)},
                               wrong = {At(kBench, 0, 0), At(kDog, 100, 0)};
  EXPECT_DOUBLE_EQ(Judge(prompt, right, kFlowGrpo).score, 1);
  EXPECT_DOUBLE_EQ(Judge(prompt, wrong, kFlowGrpo).score, 3.0 / 4);  // 1, 1, 0 and then 1.
  EXPECT_TRUE(Judge(prompt, right, kOfficial).correct);
  EXPECT_EQ(Judge(prompt, wrong, kOfficial).reason,
            "expected dog left of target, found right of target");
}

TEST(GenevalRuleTest, FlowGrpoIgnoresWhatIsExcluded) {
  const GenevalPrompt prompt = Prompt(R"({"include": [{"class": "dog", "count": 1}],
                                          "exclude": [{"class": "bench", "count": 1}]})");
  const std::vector<Detection> both = {At(kBench, 0, 0), At(kDog, 0, 0)};
  EXPECT_EQ(Judge(prompt, both, kFlowGrpo).score, 1);
  EXPECT_EQ(Judge(prompt, both, kOfficial).reason, "expected bench<1, found 1");
}

TEST(GenevalRuleTest, CountingNeedsHigherScores) {
  const std::vector<Detection> found = {At(kDog, 0, 0, 0.3F), At(kDog, 0, 0, 0.31F),
                                        At(kDog, 0, 0, 0.9F), At(kDog, 0, 0, 0.91F)};
  EXPECT_THAT(CountDetections(found, "counting").at(kDog), ElementsAre(3));
  EXPECT_THAT(CountDetections(found, "").at(kDog), ElementsAre(3, 2, 1));
}

TEST(GenevalRuleTest, OfTenThousandDetectionsSixteenOfAClassCount) {
  std::vector<Detection> found;
  for (int i = 0; i < 10'000; ++i) {
    found.push_back(At(i % 2 == 0 ? kDog : kBench, 0, 0, 0.5F + static_cast<float>(i) * 1e-5F));
  }
  const CountedDetections counted = CountDetections(found, "");
  ASSERT_EQ(counted.at(kDog).size(), 16u);
  EXPECT_EQ(counted.at(kBench).front(), 9999u);
  EXPECT_EQ(counted.at(kDog).front(), 9998u);
}

TEST(GenevalPromptTest, BadMetadataAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "are not a JSON object"},
      {"", "are not a JSON object"},
      {R"({"tag": "colors"})", "include: missing"},
      {R"({"include": []})", "include: missing"},
      {R"({"include": {}})", "include: a list of up to 100 entries"},
      {R"({"include": [3]})", "include[0]: not a JSON object"},
      {R"({"tag": 3, "include": [{"class": "dog", "count": 1}]})", "tag: not a string"},
      {R"({"include": [{"class": "dgo", "count": 1}]})",
       "include[0]: unknown class \"dgo\": did you mean `dog`?"},
      {R"({"include": [{"count": 1}]})", "`class` is not a name"},
      {R"({"include": [{"class": "dog"}]})", "`count` is 1..1000, got none"},
      {R"({"include": [{"class": "dog", "count": 0}]})", "`count` is 1..1000, got 0"},
      {R"({"include": [{"class": "dog", "count": 1.5}]})", "`count` is 1..1000"},
      {R"({"include": [{"class": "dog", "count": 18446744073709551615}]})", "`count` is 1..1000"},
      {R"({"include": [{"class": "dog", "count": 1, "color": "mauve"}]})",
       "unknown color \"mauve\""},
      {R"({"include": [{"class": "dog", "count": 1, "position": ["under", 0]}]})",
       "a relation is one of left of, right of, above, below"},
      {R"({"include": [{"class": "dog", "count": 1, "position": ["below", 0]}]})",
       "relative to an earlier entry, got 0"},
      {R"({"include": [{"class": "dog", "count": 1, "position": "below"}]})",
       "`position` is [relation, entry]"},
      {R"({"include": [{"class": "dog", "count": 1}], "exclude": [{"class": "x"}]})",
       "exclude[0]: unknown class"},
  };
  for (const auto& [metadata, what] : cases) {
    const absl::Status status = ParseGenevalPrompt(metadata).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << metadata;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace oxbow::reward
