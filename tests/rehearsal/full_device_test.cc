// SPDX-License-Identifier: Apache-2.0
// A GPU that is full at any moment of a learner's work: the work ends with one line, nothing stays
// on the device, and the same work then succeeds.
#include <c10/util/Logging.h>
#include <gmock/gmock.h>

#include "base/exit_code.h"
#include "core/flow/schedule.h"
#include "core/model/device_memory.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "tests/gpu/gpu_test.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSteps = 3;
constexpr uint64_t kStride = 10;

rl::Group MadeUpGroup() {
  at::manual_seed(4);
  rl::Group group{.conditioning = RandomPrompts(1)};
  for (uint32_t i = 0; i < 2; ++i) {
    rl::Trajectory sample{.index = i,
                          .latents = at::randn({kSteps + 1, 4, 8, 8}),
                          .sde = std::vector<bool>(kSteps, true),
                          .behaviour_version = std::vector<uint64_t>(kSteps, 0)};
    sample.log_prob.assign(kSteps, 0);
    sample.reward = i;
    sample.rewards["made_up"] = sample.reward;
    group.trajectories.push_back(std::move(sample));
  }
  return group;
}

// Makes a policy on the GPU and takes a step with it, as a learner does.
absl::Status MakeAndStep(const PolicyKind& kind, const std::vector<rl::Group>& groups) {
  return WithMemoryFor(
      [&] {
        const auto policy = GpuSizedPolicy(kind);
        rl::TrainerOptions options{
            .sampling = {.sigmas =
                             flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
                         .sde = std::vector<bool>(kSteps, true)},
            .updates = 1,
            .rows_per_pass = 3};
        options.sampling.guidance = kind.guidance;
        options.kl.weight = 0.01;
        options.ema_enabled = false;
        const auto ranks = parallel::MakeSingleRank();
        rl::Trainer trainer(options, *policy, *ranks);
        return trainer.Step(LearnerStep(0), groups).status();
      },
      "lower batch.rows_per_pass");
}

using FullDeviceTest = GpuTest;

TEST_F(FullDeviceTest, AFailedAllocationAnywhereInAStepIsOneLineAndLeavesNothingBehind) {
  c10::SetStackTraceFetcher([] { return std::string(); });  // Else an error takes half a second.
  auto& device = rehearsal::DeviceMemory::Of(0);
  const std::vector<rl::Group> groups = {MadeUpGroup()};
  for (const bool recompute : {false, true}) {
    const PolicyKind kind{.device = gpu_, .recompute = recompute, .guidance = 2};
    ASSERT_TRUE(MakeAndStep(kind, groups).ok());  // What is kept for good is there now.
    const rehearsal::MemoryUse before = device.Use();
    ASSERT_TRUE(MakeAndStep(kind, groups).ok());
    const uint64_t allocations = device.Use().allocations - before.allocations;
    ASSERT_EQ(device.Use().held, before.held);
    uint64_t finished = 0;
    for (uint64_t k = 1; k <= allocations; k += kStride) {
      SCOPED_TRACE(k);
      rehearsal::TheSettings().failing_allocation = device.Use().allocations + k;
      const absl::Status status = MakeAndStep(kind, groups);
      if (status.ok()) {  // It went on with fewer rows at a time.
        ++finished;
        continue;
      }
      EXPECT_TRUE(IsOutOfMemory(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("lower batch.rows_per_pass"));
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
    }
    rehearsal::TheSettings().failing_allocation = 0;
    EXPECT_TRUE(MakeAndStep(kind, groups).ok());
    EXPECT_EQ(device.Use().held, before.held);
    EXPECT_GT(finished, 0);
    EXPECT_LT(finished, allocations / kStride / 2);
  }
}

}  // namespace
}  // namespace oxbow::model
