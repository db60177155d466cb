// SPDX-License-Identifier: Apache-2.0
#include "core/flow/sampler.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "core/flow/dpmpp.h"
#include "core/flow/window.h"
#include "tests/testing/solve_dpmpp.h"

namespace oxbow::flow {
namespace {

SamplingSpec TenSteps() {
  return {.sigmas = SigmaGrid(ScheduleKind::kDiffusersDefault, 10, 3),
          .sde = {true, true, true, true, true, false, false, false, false, false}};
}

std::vector<NoiseKey> Keys(int count) {
  std::vector<NoiseKey> keys;
  for (int i = 0; i < count; ++i)
    keys.push_back({.run_seed = 5, .group = 9, .sample = static_cast<uint32_t>(i)});
  return keys;
}

// Rows are independent of each other; each depends on sigma.
at::Tensor Velocity(const at::Tensor& x, const at::Tensor& sigma) {
  return (x * 0.6).tanh() + sigma.view({-1, 1, 1, 1}) * 0.25;
}

const std::vector<int64_t> kShape = {1, 8, 12};

TEST(SamplerTest, NoiseDependsOnItsKeyAlone) {
  const at::Tensor noise = DrawNoise({5, 9, 2}, 3, kShape);
  EXPECT_TRUE(at::equal(noise, DrawNoise({5, 9, 2}, 3, kShape)));
  EXPECT_FALSE(at::equal(noise, DrawNoise({6, 9, 2}, 3, kShape)));
  EXPECT_FALSE(at::equal(noise, DrawNoise({5, 8, 2}, 3, kShape)));
  EXPECT_FALSE(at::equal(noise, DrawNoise({5, 9, 1}, 3, kShape)));
  EXPECT_FALSE(at::equal(noise, DrawNoise({5, 9, 2}, 4, kShape)));
  const Paths paths = SamplePaths(TenSteps(), Keys(3), kShape, at::kFloat, Velocity);
  EXPECT_TRUE(at::equal(paths.latents[0][2], DrawNoise({5, 9, 2}, kInitialLatent, kShape)));
}

TEST(SamplerTest, ASamplesPathIsTheSameInEveryBatch) {
  const Paths all = SamplePaths(TenSteps(), Keys(7), kShape, at::kFloat, Velocity);
  for (const int row : {0, 3, 6}) {
    const Paths one =
        SamplePaths(TenSteps(), {Keys(7)[static_cast<size_t>(row)]}, kShape, at::kFloat, Velocity);
    EXPECT_TRUE(at::equal(one.latents.select(1, 0), all.latents.select(1, row)));
    EXPECT_TRUE(at::equal(one.log_prob.select(1, 0), all.log_prob.select(1, row)));
  }
}

class StorageTest : public ::testing::TestWithParam<at::ScalarType> {};

// Scoring the stored latents again gives the stored log-probs, to the last bit.
TEST_P(StorageTest, StoredLatentsReproduceStoredLogProbs) {
  const SamplingSpec spec = TenSteps();
  const Paths paths = SamplePaths(spec, Keys(6), kShape, GetParam(), Velocity);
  const at::Tensor stored = paths.latents.to(GetParam()).to(at::kFloat);
  EXPECT_TRUE(at::equal(stored, paths.latents)) << "latents are representable in the storage type";
  for (int i = 0; i < spec.steps(); ++i) {
    if (!spec.sde[static_cast<size_t>(i)]) {
      EXPECT_EQ(paths.log_prob[i].abs().max().item<float>(), 0);
      continue;
    }
    const at::Tensor x = stored[i];
    const at::Tensor v =
        Velocity(x, at::full({6}, spec.sigmas[static_cast<size_t>(i)], at::kFloat));
    EXPECT_TRUE(at::equal(ScoreTransition(spec, i, x, stored[i + 1], v), paths.log_prob[i]))
        << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, StorageTest,
                         ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16));

TEST(SamplerTest, ContinuingWithTheSameKeysRepeatsTheTail) {
  const SamplingSpec spec = TenSteps();
  const Paths whole = SamplePaths(spec, Keys(4), kShape, at::kHalf, Velocity);
  const Paths tail = ContinuePaths(spec, Keys(4), whole.latents[3], 3, at::kHalf, Velocity);
  EXPECT_EQ(tail.first_step, 3);
  EXPECT_TRUE(at::equal(tail.latents, whole.latents.slice(0, 3)));
  EXPECT_TRUE(at::equal(tail.log_prob, whole.log_prob.slice(0, 3)));
}

TEST(SamplerTest, AnOdeTailHasNoDensityAndNoNoise) {
  SamplingSpec ode = TenSteps();
  ode.sde.assign(10, false);
  const at::Tensor start = DrawNoise({1, 1, 1}, 0, kShape).unsqueeze(0);
  const Paths a = ContinuePaths(ode, {{1, 1, 1}}, start, 2, at::kFloat, Velocity);
  const Paths b = ContinuePaths(ode, {{2, 2, 2}}, start, 2, at::kFloat, Velocity);
  EXPECT_TRUE(at::equal(a.latents, b.latents));
  EXPECT_EQ(a.log_prob.abs().max().item<float>(), 0);
}

class SolverTest : public ::testing::TestWithParam<SolverKind> {};

INSTANTIATE_TEST_SUITE_P(Solvers, SolverTest,
                         ::testing::Values(SolverKind::kEuler, SolverKind::kDpmpp2m,
                                           SolverKind::kDpmppHeun));

DpmppKind DpmppOf(SolverKind solver) {
  if (solver == SolverKind::kEuler) return DpmppKind::kFirst;
  return solver == SolverKind::kDpmpp2m ? DpmppKind::kMidpoint : DpmppKind::kHeun;
}

// Noise inside the window is the same draw for every solver. After the window the solver starts
// again, so the rest is its own result from x at the window's end.
TEST_P(SolverTest, DeterministicPartsAreTheSolversOwn) {
  SamplingSpec spec = TenSteps();
  spec.sde = StepFlags({3, 4}, 10);
  spec.solver = GetParam();
  const Paths paths = SamplePaths(spec, Keys(3), kShape, at::kFloat, Velocity);
  const auto solve = [&](int first, int last) {
    std::vector<double> sigmas(spec.sigmas.begin() + first, spec.sigmas.begin() + last + 1);
    return SolveDpmpp(DpmppOf(spec.solver), sigmas, paths.latents[first], Velocity);
  };
  EXPECT_TRUE(at::allclose(solve(5, 10), paths.latents[10], 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(solve(0, 2), paths.latents[2], 1e-5, 1e-5));
  const Paths again = ContinuePaths(spec, Keys(3), paths.latents[5], 5, at::kFloat, Velocity);
  EXPECT_TRUE(at::equal(again.latents, paths.latents.slice(0, 5)));
}

// Gaussian data: mean 1, standard deviation 1/2. Its velocity is known, so every correct sampler
// ends in that distribution: the ODE, the SDE, and every mixture of the two.
at::Tensor GaussianVelocity(const at::Tensor& x, const at::Tensor& sigma) {
  const at::Tensor t = sigma.view({-1, 1, 1, 1});
  const at::Tensor a = 1 - t;
  return (x - a) * ((t - a * .25) / (a * a * .25 + t * t)) - 1;
}

TEST_P(SolverTest, MixturesOfOdeAndSdeKeepTheDataDistribution) {
  constexpr int kSamples = 64;
  constexpr int kManySteps = 200;
  constexpr double kNumbers = kSamples * 96;
  for (const std::vector<int>& window :
       {std::vector<int>{}, {10, 11, 12}, {100, 101, 102, 103}, {5, 45, 85, 125}}) {
    SamplingSpec spec{.sigmas = SigmaGrid(ScheduleKind::kLinspace, kManySteps, 3),
                      .eta = .5,
                      .sde = StepFlags(window, kManySteps),
                      .solver = GetParam()};
    const Paths paths = SamplePaths(spec, Keys(kSamples), kShape, at::kFloat, GaussianVelocity);
    const at::Tensor end = paths.latents[kManySteps].to(at::kDouble);
    // Four standard errors, plus the discretisation error of a step.
    EXPECT_NEAR(end.mean().item<double>(), 1, 4 * .5 / std::sqrt(kNumbers) + .01);
    EXPECT_NEAR(end.std().item<double>(), .5, 4 * .5 / std::sqrt(2 * kNumbers) + .015)
        << "window of " << window.size();
  }
}

TEST(SamplerTest, SecondOrderNeedsFewerSteps) {
  const auto end = [](SolverKind solver, int steps) {
    const SamplingSpec spec{.sigmas = SigmaGrid(ScheduleKind::kLinspace, steps, 3),
                            .dynamics = DynamicsKind::kOde,
                            .sde = std::vector<bool>(static_cast<size_t>(steps), false),
                            .solver = solver};
    return SamplePaths(spec, Keys(4), kShape, at::kFloat, Velocity).latents[steps];
  };
  const at::Tensor exact = end(SolverKind::kEuler, 1000);
  const auto error = [&](const at::Tensor& x) { return (x - exact).abs().mean().item<float>(); };
  const float euler = error(end(SolverKind::kEuler, 20));
  EXPECT_LT(error(end(SolverKind::kDpmpp2m, 20)), 0.5f * euler);
  EXPECT_LT(error(end(SolverKind::kDpmppHeun, 20)), 0.5f * euler);
}

SamplingSpec FlowSde(ScheduleKind kind, int steps, double shift, double eta, int first, int count) {
  SamplingSpec spec{.sigmas = SigmaGrid(kind, steps, shift), .eta = eta};
  spec.sde.assign(static_cast<size_t>(steps), false);
  for (int i = first; i < first + count; ++i) spec.sde[static_cast<size_t>(i)] = true;
  return spec;
}

// The per-step constants of SD3.5-M with eta .7; the last step is deterministic.
TEST(TruncationTest, SensitivityOfTheSd35Grid) {
  const auto table = SensitivityTable(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 0, 9));
  EXPECT_THAT(table,
              ::testing::Pointwise(::testing::DoubleNear(6e-5), {.0016, .0031, .0084, .0177, .0349,
                                                                 .0688, .1435, .3401, 1.1052, 0.}));
}

TEST(TruncationTest, KeepsTheStepsUnderTheLimit) {
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 0, 9), .3), 7);
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kLinspace, 6, DynamicShift(1024), .9, 0, 5), .3), 5);
}

TEST(TruncationTest, AWindowEndsTheKeptPart) {
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 1, 3), .3), 4);
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 0, 0), .3), 0);
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 8, 1), .3), 0);
}

}  // namespace

}  // namespace oxbow::flow
