// SPDX-License-Identifier: Apache-2.0
// Paths with fewer steps behind the stochastic window: what they share with whole paths, and what
// they are behind it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/flow/dpmpp.h"
#include "core/flow/sampler.h"
#include "core/flow/window.h"
#include "tests/golden/golden.h"

namespace oxbow::flow {
namespace {

using ::oxbow::testing::CompressionGolden;
using ::oxbow::testing::kGoldenTolerance;

constexpr int kSteps = 12;
const std::vector<int64_t> kLatent = {1, 4, 6};

SamplingSpec WindowSpec(const std::vector<int>& window, const Compression& compression) {
  return {.sigmas = SigmaGrid(ScheduleKind::kLinspace, kSteps, 3),
          .sde = StepFlags(window, kSteps),
          .compression = compression};
}

std::vector<NoiseKey> SomeKeys() { return {{3, 1, 0}, {3, 1, 1}, {3, 2, 0}}; }

// How often a network was asked, beside its answer.
struct Counted {
  int calls = 0;

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& sigma) {
    ++calls;
    return (x * 0.6).tanh() + sigma.view({-1, 1, 1, 1}) * 0.25;
  }
};

at::Tensor VectorOf(const nlohmann::json& values) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble).unsqueeze(0);
}

// From x at the window's end to the picture, by what the header says of solver and levels.
at::Tensor Solved(const std::vector<double>& levels, const at::Tensor& x_free, DpmppSolver solver,
                  const VelocityFunction& velocity) {
  at::Tensor x = x_free;
  for (size_t i = 0; i + 1 < levels.size(); ++i) {
    const at::Tensor v = velocity(x, at::full({x.size(0)}, levels[i], x.options()));
    x = solver.Step(x, v, levels[i], levels[i + 1], i + 2 == levels.size());
  }
  return x;
}

// Promise: Compressed steps change no trained transition.
TEST(CompressedPathTest, GoldenLatentsBehindTheWindow) {
  for (const auto& r : CompressionGolden()["compression"]) {
    const std::vector<double> sigmas = r["sigmas"];
    const auto free = static_cast<size_t>(r["last"].get<int>()) + 1;
    const double slope = r["slope"], offset = r["offset"];
    const auto velocity = [&](const at::Tensor& x) { return (x * slope).tanh() + offset; };
    DpmppSolver solver(r["kind"] == "midpoint" ? DpmppKind::kMidpoint : DpmppKind::kHeun);
    if (r["carry"]) {
      const at::Tensor before = VectorOf(r["x_last"]);
      solver.Note(before, velocity(before), sigmas[free - 1]);
    }
    at::Tensor x = VectorOf(r["path"][0]);
    for (size_t i = free; i + 1 < sigmas.size(); ++i) {
      x = solver.Step(x, velocity(x), sigmas[i], sigmas[i + 1], i + 2 == sigmas.size());
      const at::Tensor wanted = VectorOf(r["path"][i + 1 - free]);
      EXPECT_LT((x - wanted).abs().max().item<double>(), kGoldenTolerance);
    }
  }
}

// A path up to the window's end is that of a run without compression, bit for bit: its transitions
// are scored by the learner, which knows of no compression.
// Promise: Compressed steps change no trained transition. With `sampling.compression` a path up to
// the end of its window, and what the learner gets of it, has the bits of one without. A stored
// head has no level that is left out. `rollout/rows_forward` counts the steps that were taken.
// Levels and latents are those of MixGRPO's public code.
TEST(CompressedPathTest, UpToTheWindowsEndThePathIsTheWholeOne) {
  for (const std::vector<int>& window : {std::vector<int>{0, 1}, {3, 4, 5}, {2, 7}, {10}}) {
    for (const bool carry : {false, true}) {
      const SamplingSpec whole = WindowSpec(window, {});
      const SamplingSpec spec = WindowSpec(window, {.share = .4, .shift = 3, .carry = carry});
      const Paths wanted = SamplePaths(whole, SomeKeys(), kLatent, at::kHalf, Counted());
      const Paths paths = SamplePaths(spec, SomeKeys(), kLatent, at::kHalf, Counted());
      const int64_t free = window.back() + 1;
      EXPECT_TRUE(
          at::equal(paths.latents.slice(0, 0, free + 1), wanted.latents.slice(0, 0, free + 1)));
      EXPECT_TRUE(at::equal(paths.log_prob.slice(0, 0, free), wanted.log_prob.slice(0, 0, free)));
      EXPECT_EQ(paths.log_prob.slice(0, free).abs().sum().item<float>(), 0);
    }
  }
}

TEST(CompressedPathTest, TheNetworkIsAskedOncePerStepThatIsCounted) {
  for (const double share : {1., .75, .4, .1}) {
    for (int first_step = 0; first_step <= kSteps; ++first_step) {
      const SamplingSpec spec = WindowSpec({3, 4}, {.share = share, .shift = 3});
      Counted network;
      const Paths paths =
          ContinuePaths(spec, SomeKeys(), DrawStarts(SomeKeys(), kLatent), first_step, at::kFloat,
                        [&](const at::Tensor& x, const at::Tensor& s) { return network(x, s); });
      EXPECT_EQ(network.calls, StepsTaken(share, spec.sde, first_step)) << share << first_step;
      EXPECT_EQ(paths.latents.size(0), network.calls + 1);
    }
  }
}

TEST(CompressedPathTest, BehindTheWindowTheSolverOfTheCompressionTakesTheCompressedLevels) {
  for (const bool carry : {false, true}) {
    const Compression compression{.share = .5, .shift = 3, .carry = carry};
    const SamplingSpec spec = WindowSpec({2, 3}, compression);
    const Paths paths = SamplePaths(spec, SomeKeys(), kLatent, at::kFloat, Counted());
    std::vector<double> levels = CompressedLevels(compression, spec.sigmas, 4);
    levels.insert(levels.begin(), spec.sigmas[4]);
    DpmppSolver solver(DpmppKind::kMidpoint);
    if (carry) {
      const at::Tensor x = paths.latents[3];
      solver.Note(x, Counted()(x, at::full({3}, spec.sigmas[3])), spec.sigmas[3]);
    }
    const at::Tensor end = Solved(levels, paths.latents[4], solver, Counted());
    const at::Tensor picture = paths.latents[paths.latents.size(0) - 1];
    EXPECT_LT((end - picture).abs().max().item<double>(), 1e-5);
  }
}

// Where the steps before the window are of second order, too, each solver has its own memory.
TEST(CompressedPathTest, TheSolverBeforeTheWindowIsNotThatBehindIt) {
  SamplingSpec spec = WindowSpec({4, 5}, {.share = .5, .shift = 3});
  spec.solver = SolverKind::kDpmpp2m;
  const Paths paths = SamplePaths(spec, SomeKeys(), kLatent, at::kFloat, Counted());
  DpmppSolver before(DpmppKind::kMidpoint);
  at::Tensor x = paths.latents[0];
  for (size_t i = 0; i < 4; ++i) {
    const at::Tensor v = Counted()(x, at::full({3}, spec.sigmas[i]));
    x = before.Step(x, v, spec.sigmas[i], spec.sigmas[i + 1], /*last=*/false);
  }
  EXPECT_LT((x - paths.latents[4]).abs().max().item<double>(), 1e-5);
  std::vector<double> levels = CompressedLevels(spec.compression, spec.sigmas, 6);
  levels.insert(levels.begin(), spec.sigmas[6]);
  const at::Tensor end =
      Solved(levels, paths.latents[6], DpmppSolver(DpmppKind::kMidpoint), Counted());
  EXPECT_LT((end - paths.latents[paths.latents.size(0) - 1]).abs().max().item<double>(), 1e-5);
}

// A replayed head ends within the window, or at its end. Its tail is the path's own from there.
// Promise: Compressed steps change no trained transition.
TEST(CompressedPathTest, ATailGoesOnAsThePathDid) {
  const SamplingSpec spec = WindowSpec({2, 3, 4}, {.share = .4, .shift = 3});
  const Paths whole = SamplePaths(spec, SomeKeys(), kLatent, at::kHalf, Counted());
  for (const int first : {1, 3, 5}) {
    const Paths tail =
        ContinuePaths(spec, SomeKeys(), whole.latents[first], first, at::kHalf, Counted());
    EXPECT_TRUE(at::equal(tail.latents, whole.latents.slice(0, first)));
    EXPECT_TRUE(at::equal(tail.log_prob, whole.log_prob.slice(0, first)));
  }
}

TEST(CompressedPathTest, TreesShareWhatTheySharedAndAreCompressedBehindTheWindow) {
  SamplingSpec spec = WindowSpec({1, 2}, {.share = .4, .shift = 3, .carry = true});
  spec.splits = {.steps = {1}, .width = 2};
  const std::vector<NoiseKey> keys = {{3, 1, 0}, {3, 1, 1}};
  std::vector<NoiseKey> roots = keys;
  for (NoiseKey& root : roots) root.sample = 0;
  const at::Tensor starts = DrawStarts(roots, kLatent);
  int64_t rows = 0;
  const Paths trees =
      ContinueTrees(spec, keys, starts, 0, at::kFloat,
                    [&](const at::Tensor& x, const at::Tensor& sigma, const std::vector<int64_t>&) {
                      rows += x.size(0);
                      return Counted()(x, sigma);
                    });
  const Paths apart = ContinuePaths(spec, keys, starts, 0, at::kFloat, Counted());
  EXPECT_TRUE(at::equal(trees.latents, apart.latents));
  EXPECT_EQ(rows, NodesOfGroup(spec.splits, 2, StepsTaken(.4, spec.sde, 0)));
}

TEST(CompressedPathTest, ASpecsIdTellsHowItsPathsEnd) {
  const SamplingSpec plain = WindowSpec({2, 3}, {});
  SamplingSpec whole = plain;
  whole.compression = {.share = 1, .shift = 7, .carry = true};
  EXPECT_EQ(plain.Id(), whole.Id()) << "stored ids keep their value";
  const Compression base{.share = .5, .shift = 3};
  Compression share = base, shift = base, carry = base;
  share.share = .6;
  shift.shift = 4;
  carry.carry = true;
  const uint64_t id = WindowSpec({2, 3}, base).Id();
  EXPECT_NE(id, plain.Id());
  for (const Compression& other : {share, shift, carry}) {
    EXPECT_NE(WindowSpec({2, 3}, other).Id(), id);
  }
}

}  // namespace
}  // namespace oxbow::flow
