// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/reward_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/weight_files.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;

const std::string kScorers = OXBOW_SOURCE_DIR "/tests/golden/scorers";
const std::string kClip = kScorers + "/clip";
const std::string kHead = kScorers + "/head.safetensors";

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
  for (const auto& [name, header] : files.headers()) {
    values += files.BytesOf(name).size() / io::WidthOf(header.dtype);
  }
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

// Gigabytes of PickScore are hashed for half a minute.
TEST(RewardPlanTest, EachRewardIsSaidBeforeItsFilesAreRead) {
  v1::RunConfig config;
  config.mutable_reward()->add_observed("digits_row");
  Add(config, "pickscore", "").set_model("/nowhere");
  std::vector<std::string> said;
  EXPECT_FALSE(LoadOwnRewards(config.reward(), [&](const std::string& doing) {
                 said.push_back(doing);
               }).ok());
  EXPECT_THAT(said, ElementsAre("reading and hashing the files of reward digits_row",
                                "reading and hashing the files of reward pickscore"));
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
  EXPECT_EQ(weights[2].device, "cuda");
  EXPECT_EQ(weights[2].bytes * 2, weights[0].bytes);
  EXPECT_EQ(weights[1].bytes, 4 * ValuesIn(io::WeightFiles::OpenFile(kHead).value()));
  EXPECT_THAT(RewardBytes(config.reward()),
              ElementsAre(Pair("cpu", weights[0].bytes + weights[1].bytes),
                          Pair("cuda", weights[2].bytes)));
  EXPECT_THAT(RewardsText(config, {}), HasSubstr("weights of pickscore, clipscore, aesthetic: "));
  config.mutable_reward()->mutable_scorers(0)->set_model("/nowhere");
  EXPECT_THAT(WeightsOfRewards(config.reward())[0].rewards, ElementsAre("clipscore", "aesthetic"));
}

TEST(RewardPlanTest, TheHeadOfGenevalIsAClipOnItsDeviceInItsType) {
  v1::RunConfig config;
  v1::ScorerConfig& entry = Add(config, "geneval", "f16");
  entry.set_model(kScorers + "/ppocr/mobile/0/det");  // Any weights will do.
  entry.set_head(kClip);
  entry.set_device("cuda:1");
  Add(config, "clipscore", "f16").set_device("cuda:1");
  const auto weights = WeightsOfRewards(config.reward());
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[0].device, "cuda:1");
  EXPECT_EQ(weights[1].device, "cuda:1");
  EXPECT_THAT(weights[1].path, EndsWith("scorers/clip"));
  EXPECT_THAT(weights[1].rewards, ElementsAre("geneval", "clipscore")) << "they share it";
  EXPECT_EQ(weights[1].bytes, 2 * ValuesIn(io::WeightFiles::Open(kClip, "model").value()));
}

TEST(RewardPlanTest, BothNetworksOfPpocrCount) {
  v1::RunConfig config;
  config.mutable_services()->set_reward_servers(1);
  v1::ScorerConfig& entry = Add(config, "ocr", "");
  entry.set_engine("ppocr");
  entry.set_device("cuda");
  entry.set_model(kScorers + "/ppocr/mobile/0");
  uint64_t bytes = 0;
  for (const char* network : {"/det", "/rec"}) {
    bytes += 4 * ValuesIn(io::WeightFiles::Open(entry.model() + network, "model").value());
  }
  EXPECT_GT(bytes, 0u);
  const auto weights = WeightsOfRewards(config.reward());
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_THAT(weights[0].path, EndsWith("/det"));
  EXPECT_THAT(RewardBytes(config.reward()), ElementsAre(Pair("cuda", bytes)));
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
