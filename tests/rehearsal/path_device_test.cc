// SPDX-License-Identifier: Apache-2.0
// Paths that are drawn on a GPU: what is in host memory then, and what the host did for it.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/flow/sampler.h"
#include "core/flow/schedule.h"
#include "core/model/cuda_graphs.h"
#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

constexpr int kSteps = 6;
constexpr int64_t kRows = 5;

flow::SamplingSpec Spec() {
  return {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
          .sde = {true, true, false, true, true, true}};
}

// Paths of rows of `shape`, with a network of one product.
flow::Paths PathsOn(at::Device device, at::IntArrayRef shape, at::ScalarType storage) {
  std::vector<flow::NoiseKey> keys;
  for (uint32_t i = 0; i < kRows; ++i) keys.push_back({.run_seed = 3, .sample = i});
  const at::Tensor start = flow::DrawStarts(keys, shape).to(device);
  TheLog().Clear();
  return flow::ContinuePaths(Spec(), keys, start, /*first_step=*/0, storage,
                             [](const at::Tensor& x, const at::Tensor& s) {
                               EXPECT_EQ(s.device(), x.device());
                               return x * 0.5 + s.view({-1, 1, 1, 1});
                             });
}

class PathDeviceTest : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override { TheSettings() = {.devices = 2, .mode = GetParam()}; }
  // Kernels that nobody waited for run before another mode begins, whose kernels overtake them.
  void TearDown() override {
    for (int device = 0; device < 2; ++device) {
      SynchronizeDevice(static_cast<c10::DeviceIndex>(device));
    }
    TheSettings() = {.devices = 2};
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, PathDeviceTest, ::testing::Values(Mode::kNow, Mode::kLate));

// Noise that the caller draws, and noise of a thread.
TEST_P(PathDeviceTest, HasTheBitsOfTheCpu) {
  for (const int64_t side : {3, 64}) {
    for (const at::ScalarType storage : {at::kFloat, at::kHalf}) {
      const flow::Paths there = PathsOn(at::Device(at::kCUDA, 0), {4, side, side}, storage);
      const flow::Paths here = PathsOn(at::kCPU, {4, side, side}, storage);
      EXPECT_TRUE(there.latents.is_cpu() && there.log_prob.is_cpu());
      EXPECT_TRUE(at::equal(there.latents, here.latents)) << side;
      EXPECT_TRUE(at::equal(there.log_prob, here.log_prob)) << side;
    }
  }
}

TEST_P(PathDeviceTest, NoStepWaitsAndOnlyNoiseGoesThere) {
  const flow::Paths paths = PathsOn(at::Device(at::kCUDA, 0), {4, 64, 64}, at::kFloat);
  const Figures figures = TheLog().Of(0);
  constexpr int kNoisy = 4;  // The third step has no noise, and the last is deterministic.
  EXPECT_EQ(figures.All(Transfer::kHostToDevice).bytes, kNoisy * kRows * 4 * 64 * 64 * 4);
  EXPECT_EQ(figures.AllWaits().count, 1) << "x_0 alone, which is there before the first step";
}

// Adds the mean of its prompt to what it is given.
class PromptedModel final : public model::VelocityModel {
  at::Tensor Predict(const at::Tensor& x, const at::Tensor&,
                     const model::Conditioning& conditioning) const override {
    return x + conditioning.at(model::kPromptTokens).flatten(1).mean(1).view({-1, 1, 1, 1});
  }
};

// A recorded pass of rows that share a prompt of host memory.
TEST_P(PathDeviceTest, APromptThatRowsShareIsSentOnceForARecordedPass) {
  const at::Device there(at::kCUDA, 0);
  const at::Tensor prompt = at::randn({1, 7, 64}), x = at::randn({kRows, 4, 8, 8});
  const auto recorded =
      model::MakeRecorded(std::make_unique<PromptedModel>(), {at::ones({1}).to(there)},
                          model::MakeCudaGraphRecorder(there));
  const at::NoGradGuard no_grad;
  const auto velocity = [&] {
    return recorded->Velocity(x, at::zeros({kRows}), {{model::kPromptTokens, prompt}});
  };
  EXPECT_TRUE(at::allclose(velocity(), x + prompt.mean(), 1e-5, 1e-5));
  TheLog().Clear();
  (void)velocity();
  EXPECT_EQ(TheLog().Of(0).All(Transfer::kHostToDevice).bytes,
            4 * static_cast<double>(x.numel() + kRows + prompt.numel()));
}

class TreeDeviceTest : public PathDeviceTest {};
INSTANTIATE_TEST_SUITE_P(Late, TreeDeviceTest, ::testing::Values(Mode::kLate));

// Trees of four samples: which rows have a node in common goes there before the first step.
// Promise: Trees share steps and change no bit.
TEST_P(TreeDeviceTest, NoStepWaitsAndTheBitsAreThoseOfTheCpu) {
  flow::SamplingSpec spec = Spec();
  spec.splits = {.steps = {0, 3}, .width = 2};
  std::vector<flow::NoiseKey> keys;
  for (uint32_t i = 0; i < 8; ++i) keys.push_back({.run_seed = 3, .sample = i});
  std::vector<flow::NoiseKey> roots = keys;
  for (flow::NoiseKey& root : roots) root.sample = spec.splits.FirstLeaf(root.sample, -1);
  const auto tree = [&](at::Device device, std::vector<int64_t>& waits) {
    const at::Tensor start = flow::DrawStarts(roots, {4, 64, 64}).to(device);
    TheLog().Clear();
    flow::Paths paths = flow::ContinueTrees(
        spec, keys, start, /*first_step=*/0, at::kFloat,
        [&](const at::Tensor& x, const at::Tensor& s, const std::vector<int64_t>& rows) {
          EXPECT_EQ(x.size(0), static_cast<int64_t>(rows.size()));
          if (device.is_cuda()) waits.push_back(TheLog().Of(0).AllWaits().count);
          return x * 0.5 + s.view({-1, 1, 1, 1});
        });
    return paths;
  };
  std::vector<int64_t> waits;
  const flow::Paths there = tree(at::Device(at::kCUDA, 0), waits);
  const flow::Paths here = tree(at::kCPU, waits);
  EXPECT_TRUE(at::equal(there.latents, here.latents));
  EXPECT_TRUE(at::equal(there.log_prob, here.log_prob));
  ASSERT_EQ(waits.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(waits.front(), waits.back()) << "waits after the first step began";
}

}  // namespace
}  // namespace oxbow::rehearsal
