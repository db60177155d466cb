// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "config/run_config.h"
#include "run/sampling_spec.h"

namespace oxbow::run {
namespace {

constexpr uint64_t kLatent = 4 * 160;  // float32
const std::vector<int64_t> kShape = {1, 8, 20};

v1::RunConfig Config(const std::vector<std::string>& overrides = {}) {
  const auto resolved =
      config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml", overrides, {});
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved->config;
}

TEST(GroupBytesTest, ATrajectoryBringsTheLatentsOfItsLongestWindow) {
  EXPECT_EQ(LatentsMax(Config()), 6u) << "five transitions";
  EXPECT_EQ(LatentsMax(Config({"sampling.window.kind=random", "sampling.window.size=2"})), 3u);
}

TEST(GroupBytesTest, AStochasticTailBringsAllLatentsWhereThereIsReplay) {
  const v1::RunConfig config = Config({"sampling.tail=sde"});
  EXPECT_EQ(LatentsMax(config), uint64_t{config.sampling().steps()} + 1);
  EXPECT_EQ(LatentsMax(Config({"sampling.tail=sde", "replay.fraction=0"})), 6u);
}

TEST(GroupBytesTest, AMethodOfFinalImagesBringsOneLatentWhateverTheTail) {
  EXPECT_EQ(LatentsMax(Config({"method.name=nft"})), 1u);
  EXPECT_EQ(LatentsMax(Config({"method.name=nft", "sampling.tail=sde"})), 1u);
}

TEST(GroupBytesTest, AnAnchorBringsTheLatentsUpToTheFinalOne) {
  const v1::RunConfig config = Config({"method.anchor.weight=0.1"});
  EXPECT_EQ(LatentsMax(config), uint64_t{config.sampling().steps()} + 1);
  EXPECT_EQ(LatentsMax(Config({"method.name=nft", "method.anchor.weight=0.1"})), 1u);
}

TEST(GroupBytesTest, ExperienceGrowsWithStalenessAndShrinksWithStorage) {
  const uint64_t groups_of_a_step = kLatent * 6 * 8 * 8;  // 8 groups of 8 samples.
  EXPECT_EQ(SinkBytesNeeded(Config(), kShape), 2 * groups_of_a_step);
  EXPECT_EQ(SinkBytesNeeded(Config({"off_policy.staleness_max=2"}), kShape), 4 * groups_of_a_step);
  EXPECT_EQ(SinkBytesNeeded(Config({"sampling.storage=bf16"}), kShape), groups_of_a_step);
}

TEST(GroupBytesTest, GroupsThatMayBeReplacedNeedRoomAsWell) {
  const v1::RunConfig config = Config({"batch.dynamic_sampling_max=3"});
  EXPECT_EQ(SinkBytesNeeded(config, kShape) - SinkBytesNeeded(Config(), kShape),
            3 * GroupBytesMax(config, kShape));
}

TEST(GroupBytesTest, AnEntryHoldsItsLatentsToTheLastStochasticStepAndItsConditioning) {
  v1::SamplingConfig sampling;
  sampling.set_storage(v1::STORAGE_D_TYPE_F32);
  EXPECT_EQ(EntryBytes(sampling, kShape, 77), kLatent + 77) << "what is before step 0";
  sampling.set_sde_first(2);
  sampling.set_sde_count(3);
  EXPECT_EQ(EntryBytes(sampling, kShape, 77), 6 * kLatent + 77);
}

}  // namespace
}  // namespace oxbow::run
