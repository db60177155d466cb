// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "core/flow/sampler.h"

namespace oxbow::flow {
namespace {

constexpr int64_t kRows = 3;

// Numbers that tell step, row and place.
void Fill(uint32_t step, size_t row, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::sin(static_cast<float>(1000 * step + 100 * row) + static_cast<float>(i));
  }
}

at::Tensor Expected(uint32_t step, int64_t length) {
  at::Tensor all = at::empty({kRows, length}, at::kFloat);
  for (size_t row = 0; row < kRows; ++row) {
    Fill(step, row,
         {all.data_ptr<float>() + static_cast<int64_t>(row) * length, static_cast<size_t>(length)});
  }
  return all;
}

// Small noise, which the caller draws, and noise that a thread draws.
class NoiseAheadTest : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Lengths, NoiseAheadTest, ::testing::Values(5, 1 << 16));

TEST_P(NoiseAheadTest, GivesEachStepItsNoiseInOrder) {
  const int64_t length = GetParam();
  const std::vector<uint32_t> steps = {0, 1, 4, 7, 8, 9};
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> elsewhere = false;
  NoiseAhead noise(steps, {kRows, length}, at::kCPU,
                   [&](uint32_t step, size_t row, std::span<float> out) {
                     if (std::this_thread::get_id() != caller) elsewhere = true;
                     Fill(step, row, out);
                   });
  std::vector<at::Tensor> taken;  // All kept: a step's noise is nobody else's memory.
  for (size_t i = 0; i < steps.size(); ++i) taken.push_back(noise.Take());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_TRUE(at::equal(taken[i], Expected(steps[i], length))) << "step " << steps[i];
  }
  EXPECT_EQ(elsewhere, length > 5);
}

TEST_P(NoiseAheadTest, MayEndBeforeItsLastStep) {
  std::atomic<int> drawn = 0;
  {
    NoiseAhead noise({0, 1, 2, 3, 4, 5}, {kRows, GetParam()}, at::kCPU,
                     [&](uint32_t step, size_t row, std::span<float> out) {
                       ++drawn;
                       Fill(step, row, out);
                     });
    noise.Take();
  }
  EXPECT_LT(drawn, 6 * kRows);
}

TEST(NoiseAheadOfNoStepsTest, WithoutStepsDoesNothing) {
  const NoiseAhead noise({}, {kRows, 1 << 16}, at::kCPU, Fill);
}

}  // namespace
}  // namespace oxbow::flow
