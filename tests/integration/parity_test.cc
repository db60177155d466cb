// SPDX-License-Identifier: Apache-2.0
// On-policy and without replay, the services compute the same bits as one process.
#include <ATen/Parallel.h>

#include "base/file.h"
#include "bench/single_process_loop.h"
#include "config/run_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/picture_file.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::ElementsAreArray;

// Promise: Services change no number. With `staleness_max: 0`, `publish_every: 1`,
// `run.deterministic: true` and no replay, every step has the loss, reward and gradient norm of one
// process without services, bit for bit.
TEST(ParityTest, ServicesEqualOneProcessBitForBit) {
  constexpr int kSteps = 6;
  const std::vector<std::string> overrides = {"run.steps=" + std::to_string(kSteps),
                                              "run.deterministic=true", "replay.fraction=0"};
  TrainingRun run(overrides);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();

  at::set_num_threads(1);
  const auto config = config::LoadRunConfig("", run.AllOverrides(overrides), {});
  ASSERT_TRUE(config.ok()) << config.status();
  auto loop = bench::SingleProcessLoop::Create(config->config);
  ASSERT_TRUE(loop.ok()) << loop.status();
  std::vector<double> loss, reward, grad_norm;
  for (int step = 0; step < kSteps; ++step) {
    auto metrics = (*loop)->Step();
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    loss.push_back((*metrics)["train/loss"]);
    reward.push_back((*metrics)["train/reward_mean"]);
    grad_norm.push_back((*metrics)["train/grad_norm"]);
  }
  EXPECT_THAT(run.Series("train/loss"), ElementsAreArray(loss));
  EXPECT_THAT(run.Series("train/reward_mean"), ElementsAreArray(reward));
  EXPECT_THAT(run.Series("train/grad_norm"), ElementsAreArray(grad_norm));
}

// Promise: Any process draws an evaluation with the same bytes.
TEST(ParityTest, WorkersDrawTheHeldOutPicturesOfOneProcess) {
  for (const std::string average : {"true", "false"}) {
    const std::vector<std::string> overrides = {
        "run.steps=4",  "run.deterministic=true",  "replay.fraction=0",
        "eval.every=2", "eval.use_ema=" + average, "ema.enabled=true"};
    TrainingRun run(overrides);
    ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();

    at::set_num_threads(1);
    const auto config = config::LoadRunConfig("", run.AllOverrides(overrides), {});
    ASSERT_TRUE(config.ok()) << config.status();
    auto loop = bench::SingleProcessLoop::Create(config->config);
    ASSERT_TRUE(loop.ok()) << loop.status();
    for (const char* folder : {"step_000000", "step_000002", "step_000004"}) {
      SCOPED_TRACE(folder);
      const size_t count = config->config.eval().images();
      const auto pictures = (*loop)->DrawHeldOut(count);
      ASSERT_TRUE(pictures.ok()) << pictures.status();
      for (size_t i = 0; i < count; ++i) {
        const io::PictureFile file = io::PictureFileOf(i, count, (*pictures)[i]);
        EXPECT_TRUE(ReadFile(run.directory() / "samples" / folder / file.name).value() ==
                    file.bytes)
            << file.name;
      }
      for (int step = 0; step < 2; ++step) ASSERT_TRUE((*loop)->Step().ok());
    }
  }
}

}  // namespace
}  // namespace oxbow::testing
