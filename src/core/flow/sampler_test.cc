#include "core/flow/sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/philox.h"

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

// Rows do not touch each other; each depends on sigma.
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

// Whoever scores the stored latents again gets the stored log-probs, to the last bit.
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

}  // namespace
}  // namespace oxbow::flow
