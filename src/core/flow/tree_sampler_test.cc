// SPDX-License-Identifier: Apache-2.0
// Paths of trees: computing each node once changes no bit, in any batch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/flow/sampler.h"

namespace oxbow::flow {
namespace {

const std::vector<int64_t> kShape = {1, 4, 6};

// Rows are independent of each other; each depends on its group by `prompt`.
at::Tensor Velocity(const at::Tensor& x, const at::Tensor& sigma, const at::Tensor& prompt) {
  return (x * 0.6).tanh() + (sigma + prompt).view({-1, 1, 1, 1}) * 0.25;
}

// A spec whose stochastic steps begin at random, with splits among them, and a batch of members of
// several groups.
struct World {
  SamplingSpec spec;
  std::vector<NoiseKey> keys;
  at::ScalarType storage = at::kFloat;

  at::Tensor Prompts() const {
    at::Tensor prompts = at::empty({static_cast<int64_t>(keys.size())}, at::kFloat);
    for (size_t i = 0; i < keys.size(); ++i) {
      prompts[static_cast<int64_t>(i)] = static_cast<float>(keys[i].group) * 0.1F;
    }
    return prompts;
  }

  // Every row by itself.
  Paths Apart() const {
    return SamplePaths(spec, keys, kShape, storage,
                       [&](const at::Tensor& x, const at::Tensor& sigma) {
                         return Velocity(x, sigma, Prompts());
                       });
  }

  // Every node once; `rows` counts what the network computes.
  Paths Shared(int64_t& rows) const {
    std::vector<NoiseKey> roots = keys;
    for (NoiseKey& root : roots) root.sample = spec.splits.FirstLeaf(root.sample, -1);
    const at::Tensor prompts = Prompts();
    return ContinueTrees(
        spec, keys, DrawStarts(roots, kShape), 0, storage,
        [&](const at::Tensor& x, const at::Tensor& sigma, const std::vector<int64_t>& which) {
          rows += x.size(0);
          return Velocity(x, sigma, prompts.index_select(0, at::tensor(which, at::kLong)));
        });
  }
};

World RandomWorld(std::mt19937& random) {
  constexpr SolverKind kSolvers[] = {SolverKind::kEuler, SolverKind::kDpmpp2m,
                                     SolverKind::kDpmppHeun};
  constexpr at::ScalarType kStorages[] = {at::kFloat, at::kHalf, at::kBFloat16};
  const int steps = 4 + static_cast<int>(random() % 5);
  World world;
  world.spec.sigmas = SigmaGrid(ScheduleKind::kLinspace, steps, 3);
  world.spec.sde.assign(static_cast<size_t>(steps), false);
  world.spec.solver = kSolvers[random() % 3];
  world.storage = kStorages[random() % 3];
  world.spec.splits.width = 2 + random() % 2;
  for (int step = 0; step + 1 < steps; ++step) {
    const bool noisy = random() % 3 != 0;
    world.spec.sde[static_cast<size_t>(step)] = noisy;
    if (noisy && random() % 2 == 0 && world.spec.splits.steps.size() < 3) {
      world.spec.splits.steps.push_back(step);
    }
  }
  const uint32_t size = world.spec.splits.Leaves() * (1 + random() % 2);
  for (uint64_t group = 3; group < 5; ++group) {
    for (uint32_t sample = 0; sample < size; ++sample) world.keys.push_back({7, group, sample});
  }
  return world;
}

void ExpectSameBits(const Paths& a, const Paths& b) {
  EXPECT_TRUE(at::equal(a.latents, b.latents));
  EXPECT_TRUE(at::equal(a.log_prob, b.log_prob));
}

// Promise: Trees share steps and change no bit. With `sampling.split_steps` a worker computes each
// node once: latents, log-probs and pictures are those of samples that are drawn one by one,
// whatever part of a tree a batch has. A GPU learns before the first step which rows share a node.
// Samples are equal until they part and different afterwards. An edge below which a sample is
// scored and kept is trained once, with the advantage of its node among those of its step; loss and
// gradient are the mean over edges. A killed learner and two ranks give the same weights. A setting
// that trees do not go with is refused in one line.

TEST(TreeSamplerTest, ComputingEachNodeOnceChangesNoBit) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const World world = RandomWorld(random);
    int64_t rows = 0;
    ExpectSameBits(world.Shared(rows), world.Apart());
    const auto size = static_cast<int64_t>(world.keys.size()) / 2;
    EXPECT_EQ(rows, 2 * NodesOfGroup(world.spec.splits, size, world.spec.steps()));
  }
}

// A batch may have some members of a tree only, in any order.
TEST(TreeSamplerTest, APartOfATreeHasTheBitsOfTheWhole) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const World world = RandomWorld(random);
    const Paths whole = world.Apart();
    std::vector<int64_t> chosen(world.keys.size());
    for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int64_t>(i);
    std::shuffle(chosen.begin(), chosen.end(), random);
    chosen.resize(1 + random() % chosen.size());
    World part = world;
    part.keys.clear();
    for (const int64_t row : chosen) part.keys.push_back(world.keys[static_cast<size_t>(row)]);
    int64_t rows = 0;
    const at::Tensor index = at::tensor(chosen, at::kLong);
    ExpectSameBits(part.Shared(rows), {.latents = whole.latents.index_select(1, index),
                                       .log_prob = whole.log_prob.index_select(1, index)});
  }
}

TEST(TreeSamplerTest, SamplesAreEqualUntilTheyPartAndDifferentAfterwards) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const World world = RandomWorld(random);
    const Paths paths = world.Apart();
    const size_t size = world.keys.size() / 2;
    for (size_t a = 0; a < size; ++a) {
      for (size_t b = 0; b < a; ++b) {
        for (int step = -1; step < world.spec.steps(); ++step) {
          const SplitTree& tree = world.spec.splits;
          const at::Tensor x = paths.latents[step + 1];
          EXPECT_EQ(at::equal(x[static_cast<int64_t>(a)], x[static_cast<int64_t>(b)]),
                    tree.FirstLeaf(world.keys[a].sample, step) ==
                        tree.FirstLeaf(world.keys[b].sample, step))
              << "samples " << b << " and " << a << " after step " << step;
        }
      }
    }
  }
}

// The first sample of a tree draws what it draws without trees.
TEST(TreeSamplerTest, TheFirstLeafIsWhatItIsAlone) {
  std::mt19937 random(1);
  World world = RandomWorld(random);
  const at::Tensor with = world.Apart().latents.select(1, 0);
  world.spec.splits = {};
  EXPECT_TRUE(at::equal(with, world.Apart().latents.select(1, 0)));
}

}  // namespace
}  // namespace oxbow::flow
