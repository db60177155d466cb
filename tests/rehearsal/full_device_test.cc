// SPDX-License-Identifier: Apache-2.0
// A GPU that is full at any moment of a learner's work: the work ends with one line, nothing stays
// on the device, and the same work then succeeds.
#include <c10/core/InferenceMode.h>
#include <c10/util/Logging.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "base/exit_code.h"
#include "base/status_macros.h"
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

// Every so many-th allocation fails, each in turn.
uint64_t Stride() {
  const char* const every = std::getenv("OXBOW_FULL_DEVICE_EVERY");
  return every == nullptr ? 50 : std::stoull(every);
}

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

// Makes a policy on the GPU, takes a step with it and draws with what is evaluated, as a learner
// does. The velocities come to `drawn`.
absl::Status MakeAndStep(const PolicyKind& kind, const std::vector<rl::Group>& groups,
                         at::Tensor& drawn) {
  return WithMemoryFor(
      [&]() -> absl::Status {
        const auto policy = GpuSizedPolicy(kind);
        rl::TrainerOptions options{
            .sampling = {.sigmas =
                             flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
                         .sde = std::vector<bool>(kSteps, true)},
            .updates = 1,
            .rows_per_pass = 3};
        options.sampling.guidance = kind.guidance;
        options.kl.weight = 0.01;
        options.ema_enabled = kind.average;
        if (kind.weights_on_host) options.moments = rl::MomentPlace::kHost;
        const auto ranks = parallel::MakeSingleRank();
        rl::Trainer trainer(options, *policy, *ranks);
        OXBOW_RETURN_IF_ERROR(trainer.Step(LearnerStep(0), groups).status());
        const c10::InferenceMode inference;
        if (!kind.average) {
          drawn = Batch(4).Of(policy->current());
          return absl::OkStatus();
        }
        const AverageInUse average(*policy);
        drawn = Batch(4).Of(average.network());
        return absl::OkStatus();
      },
      "lower batch.rows_per_pass");
}

using FullDeviceTest = GpuTest;

// Lets allocations of this work fail, one after another.
void SweepOf(const PolicyKind& kind, const std::vector<rl::Group>& groups) {
  auto& device = rehearsal::DeviceMemory::Of(0);
  at::Tensor want, drawn;
  ASSERT_TRUE(MakeAndStep(kind, groups, want).ok());  // Memory that is kept for good is there now.
  const rehearsal::MemoryUse before = device.Use();
  ASSERT_TRUE(MakeAndStep(kind, groups, want).ok());
  const uint64_t allocations = device.Use().allocations - before.allocations;
  ASSERT_EQ(device.Use().held, before.held);
  uint64_t finished = 0, failed = 0;
  for (uint64_t k = 1; k <= allocations; k += Stride()) {
    SCOPED_TRACE(k);
    rehearsal::TheSettings().failing_allocation = device.Use().allocations + k;
    const absl::Status status = MakeAndStep(kind, groups, drawn);
    ++(status.ok() ? finished : failed);
    if (status.ok()) {  // It went on with fewer rows at a time.
      EXPECT_LT(RelativeDistance(drawn, want), kExactTolerance);
      continue;
    }
    EXPECT_TRUE(IsOutOfMemory(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tried to allocate"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("lower batch.rows_per_pass"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
  rehearsal::TheSettings().failing_allocation = 0;
  EXPECT_TRUE(MakeAndStep(kind, groups, drawn).ok());
  EXPECT_EQ(device.Use().held, before.held);
  EXPECT_GT(finished, 0);
  EXPECT_GT(failed, finished);
}

// Promise: A full GPU is one line. Where an allocation fails, wherever that is, a learner ends with
// exit code 7 and one line: what was tried, how much was in use, which setting helps. So is a full
// host, of plain or of pinned memory. It is not started again. A worker, and every pass without
// gradients, goes on with half the rows; a worker without room for weights, prompts or one row ends
// like a learner. Nothing stays on the device.
TEST_F(FullDeviceTest, AFailedAllocationAnywhereInAStepIsOneLineAndLeavesNothingBehind) {
  c10::SetStackTraceFetcher([] { return std::string(); });  // Else an error takes half a second.
  const std::vector<rl::Group> groups = {MadeUpGroup()};
  const PolicyKind adapter{.device = gpu_, .guidance = 2};
  PolicyKind recomputed = adapter, average = adapter, offloaded = adapter;
  recomputed.recompute = true;
  average.trained = Trained::kFull;
  average.average = true;
  offloaded = average;
  offloaded.recompute = offloaded.weights_on_host = true;
  for (const PolicyKind& kind : {adapter, recomputed, average, offloaded}) {
    SCOPED_TRACE(::testing::Message()
                 << "all weights " << (kind.trained == Trained::kFull) << ", recomputed "
                 << kind.recompute << ", on the host " << kind.weights_on_host);
    SweepOf(kind, groups);
  }
}

// Nobody may throw while the average is taken back: there is no one to catch it.
// Promise: A full GPU is one line.
TEST_F(FullDeviceTest, AnAverageOnTheHostIsExchangedWithoutMemoryOfTheDevice) {
  auto& device = rehearsal::DeviceMemory::Of(0);
  const auto policy = GpuSizedPolicy({.device = gpu_, .trained = Trained::kFull, .average = true});
  const at::Tensor weights = policy->parameters().flat().cpu();
  policy->ema_parameters().flat().add_(1);
  const uint64_t before = device.Use().allocations;
  {
    const AverageInUse average(*policy);
    EXPECT_TRUE(at::equal(policy->parameters().flat().cpu(), weights + 1));
  }
  EXPECT_TRUE(at::equal(policy->parameters().flat().cpu(), weights));
  EXPECT_EQ(device.Use().allocations, before);
}

// A network without gradients goes on with fewer rows, whatever did not fit.
// Promise: A full GPU is one line.
TEST_F(FullDeviceTest, WeightsThatHaveNoRoomYetComeAgain) {
  auto& device = rehearsal::DeviceMemory::Of(0);
  const PolicyKind kind{.device = gpu_,
                        .trained = Trained::kFull,
                        .recompute = true,
                        .average = true,
                        .weights_on_host = true};
  const auto drawn = [](const Policy& policy) {
    const c10::InferenceMode inference;
    return Batch(4).Of(policy.current());
  };
  const auto first = GpuSizedPolicy(kind);
  const uint64_t before = device.Use().allocations;
  const at::Tensor want = drawn(*first);
  const uint64_t allocations = device.Use().allocations - before;
  for (uint64_t k = 1; k <= allocations; ++k) {
    SCOPED_TRACE(k);
    const auto policy = GpuSizedPolicy(kind);
    rehearsal::TheSettings().failing_allocation = device.Use().allocations + k;
    EXPECT_LT(RelativeDistance(drawn(*policy), want), kExactTolerance);
  }
  rehearsal::TheSettings().failing_allocation = 0;
}

}  // namespace
}  // namespace oxbow::model
