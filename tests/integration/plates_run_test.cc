// SPDX-License-Identifier: Apache-2.0
// A run whose only reward is a real OCR engine behind a reward server.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

// About a third of the rise that the recipe shows after ten steps, with seeds 0, 1 and 2.
constexpr double kRise = 0.15;
constexpr double kWitnessRise = 0.15;

TEST(PlatesRunTest, TheEnginesRewardRisesAndTheWitnessAgrees) {
  const std::string source = OXBOW_SOURCE_DIR;
  TrainingRun run({"model.path=" + source + "/models/plates",
                   "prompts.train=" + source + "/configs/prompts/plates_train.txt",
                   "prompts.eval=" + source + "/configs/prompts/plates_eval.txt", "run.steps=8",
                   "eval.every=8", "eval.images=128", "eval.use_ema=false"},
                  {}, "plates-ocr");
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const auto rows = run.metrics();
  ASSERT_FALSE(rows.empty());
  const auto rise = [&](const char* key) {
    return rows.back()[key].get<double>() - rows.front()[key].get<double>();
  };
  EXPECT_GT(rise("eval/reward_mean"), kRise);
  EXPECT_GT(rise("eval/reward_plates_reader_mean"), kWitnessRise);
  // The engine and the templates have nothing in common, and see nearly the same.
  const double engine = rows.back()["eval/reward_mean"];
  const double witness = rows.back()["eval/reward_plates_reader_mean"];
  EXPECT_NEAR(engine, witness, 0.1);
}

}  // namespace
}  // namespace oxbow::testing
