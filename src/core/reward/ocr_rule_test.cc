// SPDX-License-Identifier: Apache-2.0
#include "core/reward/ocr_rule.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::reward {
namespace {

nlohmann::json Golden() { return nlohmann::json::parse(*ReadFile(RewardGolden("ocr_rule.json"))); }

void ExpectTarget(const nlohmann::json& item, const char* key, OcrVariant variant) {
  const auto target = OcrTarget(item["prompt"], "", variant);
  if (item[key].is_null()) {
    EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << item;
  } else if (target.ok()) {
    EXPECT_EQ(*target, item[key]) << item;
  } else {
    ADD_FAILURE() << item << " " << target.status();
  }
}

// Promise: Rewards are those of their projects.
TEST(OcrRuleTest, RewardsAreThoseOfTheRuleInPython) {
  const nlohmann::json golden = Golden();
  EXPECT_GE(golden["cases"].size(), 1000u);
  for (const auto& item : golden["cases"]) {
    ExpectTarget(item, "flow_grpo", OcrVariant::kFlowGrpo);
    ExpectTarget(item, "flow_factory", OcrVariant::kFlowFactory);
    const auto reward = OcrReward(item["flow_factory"], item["read"]);
    ASSERT_TRUE(reward.ok()) << reward.status();
    EXPECT_DOUBLE_EQ(*reward, item["reward"]) << item;
  }
}

TEST(OcrRuleTest, VideosAreThoseOfTheRuleInPython) {
  const nlohmann::json golden = Golden();
  EXPECT_GE(golden["videos"].size(), 100u);
  for (const auto& item : golden["videos"]) {
    const auto reward =
        OcrVideoReward(item["target"], item["frames"].get<std::vector<std::string>>());
    ASSERT_TRUE(reward.ok()) << reward.status();
    EXPECT_NEAR(*reward, item["reward"], 1e-15) << item;
  }
}

TEST(OcrRuleTest, TextThatContainsTheTargetIsRight) {
  EXPECT_DOUBLE_EQ(*OcrReward("Hello World", "xxHELLO w o r l dyy"), 1);
  EXPECT_DOUBLE_EQ(*OcrReward("abcd", "abxd"), 0.75);
  EXPECT_DOUBLE_EQ(*OcrReward("abcd", ""), 0);
  EXPECT_DOUBLE_EQ(*OcrReward("abcd", std::string(1 << 20, 'z')), 0);
}

TEST(OcrRuleTest, InAVideoContainedTextPaysForWhatIsAround) {
  EXPECT_DOUBLE_EQ(*OcrVideoReward("abcd", {"abcd", "abcdx", "nothing alike"}), (1 + 0.75) / 2);
  EXPECT_DOUBLE_EQ(*OcrVideoReward("abcd", {}), 0);
}

TEST(OcrRuleTest, DistancesCountCodePointsAndNotBytes) {
  EXPECT_DOUBLE_EQ(*OcrReward("你好世界", "你好世間"), 0.75);
  EXPECT_DOUBLE_EQ(*OcrReward("ΟΔΟΣ", "οδος"), 1);  // A final sigma.
  EXPECT_DOUBLE_EQ(*OcrReward("Жук", "жУК"), 1);
}

TEST(OcrRuleTest, MetadataComeBeforeTheQuotation) {
  const std::string prompt = "a \"cat\" on \"wood\"";
  EXPECT_EQ(*OcrTarget(prompt, R"({"text": "DOG 7", "x": 1})", OcrVariant::kFlowGrpo), "DOG 7");
  EXPECT_EQ(*OcrTarget(prompt, R"({"x": 1})", OcrVariant::kFlowGrpo), "cat");
  EXPECT_EQ(*OcrTarget("no mark", "{}", OcrVariant::kFlowFactory), "no mark");
}

TEST(OcrRuleTest, WithoutATargetThereIsNoScore) {
  const auto refused = [](const std::string& prompt, const std::string& metadata) {
    const absl::Status status = OcrTarget(prompt, metadata, OcrVariant::kFlowGrpo).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << prompt << metadata;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused("a cat", ""), ::testing::HasSubstr("put the text in double quotes"));
  refused("a \"\" cat", "");
  refused("a \"  \" cat", "");
  refused("a cat", "[1]");
  refused("a cat", "{");
  EXPECT_THAT(refused("a \"b\"", R"({"text": 5})"), ::testing::HasSubstr("not a string: 5"));
  EXPECT_THAT(refused("\"" + std::string(kOcrTargetMax + 1, 'x') + "\"", ""),
              ::testing::HasSubstr("longer than 4096 characters: 4097"));
  EXPECT_FALSE(OcrReward(" ", "x").ok());
  EXPECT_FALSE(OcrVideoReward("", {"x"}).ok());
}

}  // namespace
}  // namespace oxbow::reward
