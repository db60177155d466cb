// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/reward_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/weight_files.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kClip = OXBOW_SOURCE_DIR "/tests/golden/scorers/clip";
const std::string kHead = OXBOW_SOURCE_DIR "/tests/golden/scorers/head.safetensors";

v1::ScorerConfig& Add(v1::RunConfig& config, const std::string& name, const std::string& dtype) {
  config.mutable_reward()->add_observed(name);
  v1::ScorerConfig& entry = *config.mutable_reward()->add_scorers();
  entry.set_name(name);
  entry.set_model(kClip);
  entry.set_dtype(dtype);
  return entry;
}

uint64_t ValuesIn(const io::WeightFiles& files) {
  uint64_t values = 0;
  for (const auto& [name, header] : files.headers()) values += files.BytesOf(name).size();
  return values;
}

TEST(RewardPlanTest, TheIdentitiesOfTheRunsOwnRewardsAreKnown) {
  v1::RunConfig config;
  config.mutable_reward()->add_terms()->set_name("digits_ocr");
  config.mutable_reward()->add_observed("digits_row");
  EXPECT_EQ(RewardsText(config, LoadOwnRewards(config.reward()).value()),
            "reward digits_row: identity digits_row/1\nreward digits_ocr: identity digits_ocr/1\n");
  config.mutable_reward()->set_transport(v1::PICTURE_TRANSPORT_JPEG);
  EXPECT_THAT(RewardsText(config, LoadOwnRewards(config.reward()).value()),
              HasSubstr("identity digits_ocr/1; jpeg q95\n"));
  config.mutable_reward()->add_endpoints("scores:7070");
  EXPECT_EQ(RewardsText(config, LoadOwnRewards(config.reward()).value()), "");
}

TEST(RewardPlanTest, WeightsCountOnceForAllRewardsOverThem) {
  v1::RunConfig config;
  config.mutable_services()->set_reward_servers(2);
  Add(config, "pickscore", "");
  Add(config, "clipscore", "");
  Add(config, "aesthetic", "").set_head(kHead);
  Add(config, "hpsv2", "bf16").set_device("cuda");
  const auto weights = WeightsOfRewards(config.reward());
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_THAT(weights[0].rewards, ElementsAre("pickscore", "clipscore", "aesthetic"));
  EXPECT_THAT(weights[1].rewards, ElementsAre("aesthetic"));  // Its head.
  EXPECT_EQ(weights[2].device, "cuda:0");
  EXPECT_EQ(weights[2].bytes * 2, weights[0].bytes);
  // The head's file is in float32, so its bytes are those in memory.
  EXPECT_EQ(weights[1].bytes, ValuesIn(io::WeightFiles::OpenFile(kHead).value()));
  EXPECT_EQ(RewardBytes(config, "cuda"), 2 * weights[2].bytes);
  EXPECT_EQ(RewardBytes(config, "cpu"), 2 * (weights[0].bytes + weights[1].bytes));
  EXPECT_THAT(RewardsText(config, {}), HasSubstr("weights of pickscore, clipscore, aesthetic: "));
  config.mutable_reward()->mutable_scorers(0)->set_model("/nowhere");
  EXPECT_THAT(WeightsOfRewards(config.reward())[0].rewards, ElementsAre("clipscore", "aesthetic"));
}

TEST(RewardPlanTest, WhatIsMissingIsNamed) {
  v1::RunConfig config;
  Add(config, "pickscore", "").set_model(OXBOW_SOURCE_DIR "/models/digits");
  EXPECT_THAT(std::string(LoadOwnRewards(config.reward()).status().message()),
              AllOf(HasSubstr("pickscore"), HasSubstr("models/digits")));
  const std::vector<reward::RewardFacts> rewards = {{.name = "count", .metadata_keys = {"want"}}};
  v1::Prompt has, has_not;
  has.set_metadata_json(R"({"want": 3})");
  has_not.set_text("five cats");
  EXPECT_TRUE(CheckMetadataKeys(rewards, {has}, "a.jsonl").ok());
  EXPECT_EQ(CheckMetadataKeys(rewards, {has, has_not}, "a.jsonl").message(),
            "reward count needs `want` in the metadata of each prompt; a.jsonl has none for: five "
            "cats");
}

}  // namespace
}  // namespace oxbow::cli
