// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "config/run_config.h"
#include "run/sampling_spec.h"

namespace oxbow::run {
namespace {

v1::RunConfig Config(const std::vector<std::string>& overrides = {}) {
  const auto resolved =
      config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/recipes/digits-op-grpo.yaml", overrides, {});
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved->config;
}

TEST(TrainingRowsTest, RowsOfAPassAreThoseOfAnUpdateOrSamplesOrAPartOfOne) {
  EXPECT_EQ(RowsOfPass(Config()), 32u * 5);  // Two updates of 32 images, five trained steps.
  EXPECT_EQ(RowsOfPass(Config({"learner.ranks=2"})), 16u * 5);
  EXPECT_EQ(RowsOfPass(Config({"batch.rows_per_pass=12"})), 10u);
  EXPECT_EQ(RowsOfPass(Config({"batch.rows_per_pass=3"})), 3u) << "of the five of a sample";
  EXPECT_EQ(RowsOfPass(Config({"batch.rows_per_pass=1000"})), 32u * 5);
}

TEST(TrainingRowsTest, AMethodThatNeedsWholeSamplesHasAtLeastOne) {
  const auto rows = [](const std::string& method) {
    return RowsOfPass(
        Config({"method.name=" + method, "method.times.count=4", "batch.rows_per_pass=2"}));
  };
  EXPECT_EQ(rows("v_grpo"), 4u);
  EXPECT_EQ(rows("awm"), 2u);
  EXPECT_EQ(rows("gspo"), 5u) << "the trained steps of a path";
}

TEST(TrainingRowsTest, AMethodOfFinalImagesTrainsItsNoiseLevels) {
  EXPECT_EQ(TrainedSteps(Config({"method.name=awm", "method.times.count=7"})), 7u);
  EXPECT_EQ(TrainedSteps(Config({"method.name=awm", "method.times.count=0",
                                 "method.times.fraction=0.5", "sampling.steps=10"})),
            5u);
}

}  // namespace
}  // namespace oxbow::run
