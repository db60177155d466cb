// SPDX-License-Identifier: Apache-2.0
// A deterministic step keeps each group's gradient in host memory. Nothing of that waits: the host
// is as far ahead of a GPU as without.
#include <ATen/ATen.h>

#include <vector>

#include "core/flow/schedule.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "tests/gpu/gpu_test.h"
#include "tests/rehearsal/device_log.h"

namespace oxbow::model {
namespace {

constexpr int kStepsOfPath = 2;

rl::Group GroupNumber(uint64_t id) {
  at::manual_seed(id);
  rl::Group group{.id = GroupId(id), .conditioning = RandomPrompts(1)};
  for (uint32_t i = 0; i < 2; ++i) {
    rl::Trajectory sample{.index = i,
                          .latents = at::randn({kStepsOfPath + 1, 4, 8, 8}),
                          .sde = std::vector<bool>(kStepsOfPath, true),
                          .behaviour_version = std::vector<uint64_t>(kStepsOfPath, 0)};
    sample.log_prob.assign(kStepsOfPath, 0);
    sample.reward = i;
    sample.rewards["made_up"] = sample.reward;
    group.trajectories.push_back(std::move(sample));
  }
  return group;
}

using DeterministicDeviceTest = GpuTest;

// How often the host waits in a step of so many groups, each of which is a pass.
TEST_F(DeterministicDeviceTest, AGroupMakesTheHostWaitNoMoreThanWithout) {
  const auto waits = [&](bool deterministic, uint64_t groups) {
    const auto policy = GpuSizedPolicy({.device = gpu_});
    rl::TrainerOptions options{
        .sampling = {.sigmas =
                         flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kStepsOfPath, 3),
                     .sde = std::vector<bool>(kStepsOfPath, true)},
        .updates = 1,
        .rows_per_pass = 2,  // A row of each sample: the last step of a path is not trained.
        .deterministic = deterministic};
    options.ema_enabled = false;
    const auto ranks = parallel::MakeSingleRank();
    rl::Trainer trainer(options, *policy, *ranks);
    std::vector<rl::Group> step;
    for (uint64_t id = 0; id < groups; ++id) step.push_back(GroupNumber(id));
    const auto before = rehearsal::TheLog().Of(0).AllWaits().count;
    EXPECT_TRUE(trainer.Step(LearnerStep(0), step).ok());
    return rehearsal::TheLog().Of(0).AllWaits().count - before;
  };
  const auto more = [&](uint64_t groups) { return waits(true, groups) - waits(false, groups); };
  EXPECT_LE(more(8), more(2));
  EXPECT_LE(more(2), 2) << "the norm is read once";
}

}  // namespace
}  // namespace oxbow::model
