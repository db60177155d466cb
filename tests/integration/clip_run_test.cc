// SPDX-License-Identifier: Apache-2.0
// The video demo as its recipe says, but shorter.
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;

// About half of the rise of the recipe in eight steps.
constexpr double kRise = 0.2;

// Promise: The video demo learns its task. The recipe `clip` trains the embedded Wan on clips of
// three frames through all services: the held-out reward rises by .2 within eight steps, and the
// report's sheets are animated. Clips that the task draws read as 1; numbers in the wrong order,
// cut, pale or beside a third digit do not; wrong input is an error.

TEST(ClipRunTest, ClipsShowTheirNumberMoreOftenAndTheSheetsOfTheReportMove) {
  const std::string source = OXBOW_SOURCE_DIR;
  TrainingRun run({"model.path=" + source + "/models/clip",
                   "prompts.train=" + source + "/configs/prompts/clip_train.txt",
                   "prompts.eval=" + source + "/configs/prompts/clip_eval.txt", "run.steps=8",
                   "eval.every=8", "eval.images=160", "eval.use_ema=false"},
                  {}, "clip");
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const auto rows = run.metrics();
  ASSERT_FALSE(rows.empty());
  EXPECT_GT(rows.back()["eval/reward_mean"].get<double>() -
                rows.front()["eval/reward_mean"].get<double>(),
            kRise);
  EXPECT_TRUE(rows.back().contains("eval/reward_clip_steady_mean"));
  int sheets = 0;
  for (const auto& entry : fs::recursive_directory_iterator(run.directory())) {
    if (entry.path().filename() != "eval.png") continue;
    ++sheets;
    EXPECT_NE(ReadFile(entry.path()).value().find("acTL"), std::string::npos) << entry.path();
  }
  EXPECT_GE(sheets, 2);
  EXPECT_TRUE(fs::exists(run.directory() / "report.html"));
}

}  // namespace
}  // namespace oxbow::testing
