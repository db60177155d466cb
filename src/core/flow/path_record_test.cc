// SPDX-License-Identifier: Apache-2.0

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/flow/sampler.h"
#include "core/flow/schedule.h"

namespace oxbow::flow {
namespace {

constexpr int kSteps = 4;

SamplingSpec FourSteps() {
  return {.sigmas = SigmaGrid(ScheduleKind::kDiffusersDefault, kSteps, 3),
          .sde = {true, false, true, true}};  // The last is deterministic nevertheless.
}

// Rows of one and of many numbers, and all numbers of rows that are scored in portions.
class PathRecordTest : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Rows, PathRecordTest, ::testing::Values(1, 2, 3, 4, 5, 24));

TEST_P(PathRecordTest, HoldsWhatWasAddedAndTheLogProbsOfWholeBatches) {
  at::manual_seed(3);
  const SamplingSpec spec = FourSteps();
  for (const int64_t side : {1, 5, 64}) {
    const auto draw = [&] { return at::randn({GetParam(), 16, side, side}); };
    std::vector<at::Tensor> x = {draw()}, v;
    PathRecord record(spec, /*first_step=*/0, x[0]);
    for (int step = 0; step < kSteps; ++step) {
      x.push_back(draw());
      v.push_back(draw());
      record.Add(x.back(), v.back());
    }
    record.Finish();
    EXPECT_TRUE(at::equal(record.latents(), at::stack(x)));
    for (const int step : {0, 2}) {
      const auto i = static_cast<size_t>(step);
      EXPECT_TRUE(
          at::equal(record.log_prob()[step], ScoreTransition(spec, step, x[i], x[i + 1], v[i])))
          << "step " << step << " of sides of " << side;
    }
    for (const int step : {1, 3}) EXPECT_EQ(record.log_prob()[step].abs().max().item<float>(), 0);
  }
}

// Sums of several threads have the bits of a batch, which training adds up.
TEST(PathRecordThreadsTest, ThreadsChangeNoBit) {
  at::manual_seed(5);
  const SamplingSpec spec = FourSteps();
  const at::Tensor x = at::randn({5, 16, 64, 64}), v = at::randn_like(x);
  const at::Tensor alone = ScoreTransition(spec, 0, x, x.flip(0), v);
  at::set_num_threads(4);
  PathRecord record(spec, /*first_step=*/0, x);
  record.Add(x.flip(0), v);
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(record.log_prob()[0], alone));
}

TEST(PathRecordDeathTest, APathHasItsStepsAndNoMore) {
  const SamplingSpec spec = FourSteps();
  const at::Tensor x = at::zeros({1, 1, 1, 1});
  PathRecord record(spec, /*first_step=*/3, x);
  record.Add(x, x);
  EXPECT_DEATH(record.Add(x, x), "more steps than the path has");
}

}  // namespace
}  // namespace oxbow::flow
