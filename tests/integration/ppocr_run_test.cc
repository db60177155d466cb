// SPDX-License-Identifier: Apache-2.0
// A run whose reward is read by PP-OCRv5, with random weights: the parts work together, and who
// reads a picture in whose company changes nothing.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::Lt;
using ::testing::SizeIs;

// Prompts of the plates world, whose metadata ask for letters that these networks know.
std::string Prompts() {
  std::string lines;
  for (const char* digits : {"473", "000", "108", "556"}) {
    lines += nlohmann::json{{"prompt", absl::StrCat("text \"", digits, "\"")}, {"text", "nsnnhnsn"}}
                 .dump() +
             "\n";
  }
  return lines;
}

// Steps, groups and pictures of a run that ends in seconds.
TrainingRun RunReadByNetworks(const std::filesystem::path& prompts,
                              std::vector<std::string> services) {
  const std::string source = OXBOW_SOURCE_DIR;
  std::vector<std::string> overrides = {"model.path=" + source + "/models/plates",
                                        "prompts.train=" + prompts.string(),
                                        "prompts.eval=" + prompts.string(),
                                        "run.steps=2",
                                        "run.deterministic=true",
                                        "eval.every=2",
                                        "eval.images=4",
                                        "eval.grid_images=4",
                                        "batch.groups=2",
                                        "batch.group_size=4",
                                        "batch.updates=1",
                                        "reward.observed=[]",
                                        "reward.scorers=[{name: ocr, engine: ppocr, model: " +
                                            source + "/tests/golden/scorers/ppocr/mobile/1}]"};
  overrides.insert(overrides.end(), services.begin(), services.end());
  return TrainingRun(overrides, {}, "plates-ocr");
}

// Promise: The OCR engine makes no score up.
TEST(PpocrRunTest, NetworksThatReadTextRewardARun) {
  const ScopedDirectory scratch;
  const std::filesystem::path prompts = scratch.path() / "prompts.jsonl";
  std::ofstream(prompts) << Prompts();
  // Groups come in another order, and each server reads a part of them.
  TrainingRun one = RunReadByNetworks(prompts, {});
  TrainingRun many = RunReadByNetworks(
      prompts,
      {"services.rollout_workers=2", "services.reward_servers=2", "services.groups_in_flight=1"});
  for (TrainingRun* run : {&one, &many}) {
    ASSERT_EQ(run->WaitExit().value(), 0) << run->process().error_output();
    EXPECT_THAT(run->Series("train/samples_unscored"), AllOf(SizeIs(2), Each(0)));
    EXPECT_THAT(run->Series("train/reward_mean"), AllOf(SizeIs(2), Each(AllOf(Ge(0), Lt(1)))));
    EXPECT_THAT(run->Series("train/reward_mean"), Contains(Gt(0)));
  }
  for (const char* key : {"train/reward_mean", "train/loss", "eval/reward_mean"}) {
    EXPECT_EQ(one.Series(key), many.Series(key)) << key;
  }
  EXPECT_EQ(one.FinalWeights(), many.FinalWeights());
}

}  // namespace
}  // namespace oxbow::testing
