// SPDX-License-Identifier: Apache-2.0
// Pictures on their way to the reward servers of a run, as PNG and as JPEG; and what its servers
// say of the health of each reward.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> Overrides(const std::string& transport, int steps) {
  return {"run.deterministic=true", "run.steps=" + std::to_string(steps), "checkpoint.every=2",
          "reward.transport=" + transport};
}

// Promise: A run keeps its rewards.
TEST(PictureTransportTest, APngChangesNoLoss) {
  std::vector<std::vector<double>> losses;
  for (const char* transport : {"raw", "png"}) {
    TrainingRun run(Overrides(transport, 3));
    ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
    losses.push_back(run.Series("train/loss"));
  }
  ASSERT_THAT(losses[0], SizeIs(3));
  EXPECT_THAT(losses[1], ElementsAreArray(losses[0]));
}

// Promise: A run keeps its rewards.
TEST(PictureTransportTest, ARunOverJpegGoesOnRawOnlyIfThatIsAccepted) {
  TrainingRun run(Overrides("jpeg", 2));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(2));

  run.Resume(Overrides("raw", 4));
  EXPECT_NE(run.WaitExit().value(), 0);
  EXPECT_THAT(run.process().error_output(),
              HasSubstr("it was digits_ocr/1; jpeg q95, and is digits_ocr/1;"));
  run.Resume(Overrides("jpeg", 4));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(4));
}

TEST(PictureTransportTest, EachRewardOfAServerHasAHealth) {
  auto server = Process::Start({.argv = {BinaryPath("reward_server"), "--rewards", "digits_ocr"}});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ready = (*server)->WaitForLine("READY", absl::Seconds(30));
  ASSERT_TRUE(ready.ok()) << ready.status();
  const auto ask = [&](const std::string& reward) {
    auto health =
        Process::Start({.argv = {BinaryPath("oxbow_health"), "--addr", ValueOf(*ready, "grpc"),
                                 "--timeout", "20s", "--service", "oxbow.v1.Reward/" + reward}});
    return (*health)->WaitExit(absl::Seconds(30)).value();
  };
  EXPECT_EQ(ask("digits_ocr"), 0);
  EXPECT_EQ(ask("pickscore"), 3);
  (*server)->Kill(SIGTERM);
  EXPECT_EQ((*server)->WaitExit(absl::Seconds(30)).value(), 0);
}

}  // namespace
}  // namespace oxbow::testing
