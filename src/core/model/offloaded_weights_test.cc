// SPDX-License-Identifier: Apache-2.0
// A network whose weights come block by block is the network that has them. Here the device is the
// CPU as well: what a real one orders by streams is rehearsed in tests/rehearsal.
#include "core/model/offloaded_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "core/model/policy.h"
#include "gtest/gtest.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

constexpr int kBlocks = 5;

std::unique_ptr<Policy> PolicyOf(bool offloaded, bool moving = false,
                                 at::ScalarType compute = at::kFloat) {
  at::manual_seed(3);
  Policy::Options options{.architecture = SmallSd3(kBlocks, /*dual=*/1),
                          .average_on_host = true,
                          .weights_on_host = offloaded,
                          .old = moving ? OldPolicy::kKept : OldPolicy::kNone,
                          .moving_reference = moving,
                          .compute = compute,
                          .checkpoint_activations = true};
  for (const auto& [name, shape] : options.architecture->shapes())
    options.base[name] = at::randn(shape) * 0.3;
  return *Policy::Create(std::move(options));
}

at::Tensor Velocity(const VelocityModel& model) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({3, 2, 8, 6}), sigma = at::rand({3});
  return model.Velocity(
      x, sigma, {{kPromptTokens, at::randn({1, 5, 12})}, {kPooledPrompt, at::randn({1, 10})}});
}

void ExpectSameStep(Policy& plain, Policy& offloaded) {
  for (Policy* policy : {&plain, &offloaded}) policy->parameters().ZeroGrad();
  const at::Tensor want = Velocity(plain.current()).square().mean();
  const at::Tensor got = Velocity(offloaded.current()).square().mean();
  EXPECT_TRUE(at::equal(want, got)) << want << got;
  want.backward();
  got.backward();
  EXPECT_TRUE(at::equal(plain.parameters().flat_grad(), offloaded.parameters().flat_grad()));
  const at::NoGradGuard no_grad;
  for (Policy* policy : {&plain, &offloaded}) {
    policy->parameters().flat().sub_(policy->parameters().flat_grad(), 0.1);
  }
}

// All that follows the policy is written to, one after another, and read through its network.
// Promise: Where weights are changes no bit.
TEST(OffloadedWeightsTest, OldPolicyAndAReferenceThatMovesHaveTheSameBits) {
  at::set_num_threads(1);
  const auto plain = PolicyOf(false, /*moving=*/true), offloaded = PolicyOf(true, /*moving=*/true);
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    ExpectSameStep(*plain, *offloaded);
    const at::NoGradGuard no_grad;
    for (Policy* policy : {plain.get(), offloaded.get()}) {
      policy->old_parameters().flat().mul_(0.5).add_(policy->parameters().flat(), 0.5);
      if (step == 1) policy->reference_parameters().CopyFrom(policy->parameters());
    }
    EXPECT_TRUE(at::equal(Velocity(plain->old()), Velocity(offloaded->old())));
    EXPECT_TRUE(at::equal(Velocity(plain->reference()), Velocity(offloaded->reference())));
    EXPECT_TRUE(at::equal(Velocity(plain->current()), Velocity(offloaded->current())));
    EXPECT_EQ(at::equal(Velocity(plain->reference()), Velocity(plain->current())), step == 1);
  }
}

// A LoRA whose adapter has an effect, and has a reference of its own where `moving`.
std::unique_ptr<Policy> AdapterOf(bool offloaded, BaseWeights base, bool moving) {
  at::manual_seed(3);
  Policy::Options options{
      .architecture = SmallSd3(kBlocks, /*dual=*/1),
      .trained = Trained::kLora,
      .lora = {.rank = 2, .alpha = 4, .targets = {"attn.to_q", "attn.to_v", "ff.net.2"}},
      .weights_on_host = offloaded,
      .old = moving ? OldPolicy::kKept : OldPolicy::kNone,
      .moving_reference = moving,
      .compute = base == BaseWeights::kInt8 ? at::kBFloat16 : at::kFloat,
      .base_weights = base,
      .checkpoint_activations = true};
  for (const auto& [name, shape] : options.architecture->shapes())
    options.base[name] = at::randn(shape) * 0.3;
  auto policy = *Policy::Create(std::move(options));
  at::manual_seed(4);
  const at::NoGradGuard no_grad;
  policy->parameters().flat().copy_(at::randn(policy->parameters().flat().sizes()) * 0.3);
  return policy;
}

// Promise: Where weights are changes no bit. With `offload_weights` velocities, gradients,
// weights, average and checkpoints are, bit for bit, those of a run without, also where the
// reference and the old policy are on the host, and for any number of ranks that is deterministic.
// So they are for a LoRA whose frozen weights are there, in bf16 and int8, and for a worker with
// `--offload-weights`. A GPU holds the weights of two blocks and what is in no block. New weights
// are written to host memory once copies to the GPU have read the old ones. A failed step changes
// nothing.
TEST(OffloadedWeightsTest, VelocitiesGradientsAndStepsHaveTheSameBits) {
  at::set_num_threads(1);
  const auto plain = PolicyOf(false), offloaded = PolicyOf(true);
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    ExpectSameStep(*plain, *offloaded);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(Velocity(plain->current()), Velocity(offloaded->current())));
    EXPECT_TRUE(at::equal(Velocity(plain->reference()), Velocity(offloaded->reference())));
    const AverageInUse average(*plain), same_average(*offloaded);
    EXPECT_TRUE(at::equal(Velocity(average.network()), Velocity(same_average.network())));
  }
}

// Products round their weights to bfloat16 wherever that is done. Writes that leave the copy out,
// as the second step's, bring the weights themselves.
// Promise: Where weights are changes no bit.
TEST(OffloadedWeightsTest, WeightsThatComeInBfloat16ChangeNoBit) {
  at::set_num_threads(1);
  const auto plain = PolicyOf(false, false, at::kBFloat16);
  const auto offloaded = PolicyOf(true, false, at::kBFloat16);
  ParameterSet& weights = offloaded->parameters();
  ASSERT_TRUE(weights.narrow().defined());
  uint64_t exact = 0;
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE(step);
    const uint64_t before = offloaded->offloaded()->brought_bytes();
    ExpectSameStep(*plain, *offloaded);
    const uint64_t brought = offloaded->offloaded()->brought_bytes() - before;
    if (step == 0) exact = brought;
    const bool narrow = step == 1 || step == 3;
    EXPECT_EQ(brought < exact * 3 / 4, narrow) << brought << " of " << exact << " bytes";
    const at::NoGradGuard no_grad;
    if (step != 1) {
      weights.BeginNarrow();
      weights.narrow().copy_(weights.flat());
      weights.EndNarrow();
    }
    const AverageInUse average(*plain), same_average(*offloaded);
    EXPECT_TRUE(at::equal(Velocity(average.network()), Velocity(same_average.network())));
  }
}

// Promise: Where weights are changes no bit.
TEST(OffloadedWeightsTest, WhatIsFrozenOfALoraComesBlockByBlockWithTheSameBits) {
  at::set_num_threads(1);
  for (const BaseWeights base : {BaseWeights::kCompute, BaseWeights::kInt8}) {
    for (const bool moving : {false, true}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(base) << moving);
      const auto plain = AdapterOf(false, base, moving), offloaded = AdapterOf(true, base, moving);
      EXPECT_FALSE(offloaded->parameters().offloaded()) << "adapters stay where they compute";
      for (int step = 0; step < 2; ++step) {
        ExpectSameStep(*plain, *offloaded);
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(at::equal(Velocity(plain->reference()), Velocity(offloaded->reference())));
        EXPECT_TRUE(at::equal(Velocity(plain->ema()), Velocity(offloaded->ema())));
        if (moving) {
          EXPECT_TRUE(at::equal(Velocity(plain->old()), Velocity(offloaded->old())));
        }
      }
      EXPECT_GT(offloaded->offloaded()->brought_bytes(), 0u);
    }
  }
}

// Item by item, what is kept are neighbours: a block is one copy, and none of another's.
TEST(OffloadedWeightsTest, SourcesOfAnyTypeAndSeveralLeavesOfOneSourceHaveTheirValues) {
  OffloadedWeights weights{at::kCPU};
  const at::Tensor given = at::randn({70});
  const at::Tensor floats = weights.Kept(at::randn({3, 5}), at::kFloat);
  const at::Tensor bytes = weights.Kept(at::ones({7}), at::kChar);
  const at::Tensor halves = weights.Kept(given, at::kBFloat16);
  EXPECT_TRUE(at::equal(halves, given.to(at::kBFloat16)));
  const at::Tensor leaf = weights.Leaf(floats, false), again = weights.Leaf(floats, false);
  const at::Tensor of_bytes = weights.Leaf(bytes, false), of_halves = weights.Leaf(halves, false);
  EXPECT_EQ(weights.AddBlock({leaf, of_bytes, of_halves, again}), 0u);
  weights.EndNetwork();
  const auto hold = weights.Use(0);
  EXPECT_TRUE(at::equal(leaf, floats) && at::equal(again, floats) && at::equal(of_bytes, bytes));
  EXPECT_TRUE(at::equal(of_halves, halves) && of_halves.scalar_type() == at::kBFloat16);
  EXPECT_EQ(leaf.const_data_ptr(), again.const_data_ptr()) << "what two networks share comes once";
  EXPECT_EQ(weights.brought_bytes(), 2 * 256 + 140u) << "one copy with what aligns it";
}

// As where the first pass of all is a worker's, or a probe.
TEST(OffloadedWeightsTest, TheFirstPassMayBeOneWithoutGradientsForEver) {
  at::set_num_threads(1);
  const auto plain = PolicyOf(false), offloaded = PolicyOf(true);
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::equal(Velocity(plain->current()), Velocity(offloaded->current())));
  }
  ExpectSameStep(*plain, *offloaded);
  ExpectSameStep(*plain, *offloaded);
}

// A set of blocks of one leaf each, and one leaf that is in none.
class BlocksTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLength = 100;

  BlocksTest() : flat_(at::arange(4 * kLength, at::kFloat)) {
    for (int i = 0; i < 4; ++i) {
      leaves_.push_back(weights_.Leaf(flat_.narrow(0, i * kLength, kLength), i == 2));
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(weights_.AddBlock({leaves_[i]}), i);
    weights_.EndNetwork();
    weights_.BringRest();
  }

  uint64_t BlocksBrought() const { return weights_.brought_bytes() / (4 * kLength) - 1; }
  void ExpectValues(size_t leaf) {
    EXPECT_TRUE(at::equal(leaves_[leaf].detach(),
                          flat_.narrow(0, static_cast<int64_t>(leaf) * kLength, kLength)));
  }

  at::Tensor flat_;
  OffloadedWeights weights_{at::kCPU};
  std::vector<at::Tensor> leaves_;
};

TEST_F(BlocksTest, LeavesHaveValuesWhileTheyAreHeldAndNoMemoryBefore) {
  EXPECT_TRUE(leaves_[2].requires_grad() && leaves_[2].is_leaf());
  ExpectValues(3);
  for (size_t block = 0; block < 3; ++block) {
    EXPECT_EQ(leaves_[block].const_data_ptr(), nullptr);
    const auto hold = weights_.Use(block);
    ExpectValues(block);
  }
  EXPECT_EQ(leaves_[0].const_data_ptr(), nullptr);
}

// Forward and back, each block but the two at the turn comes twice.
// Promise: Where weights are changes no bit.
TEST_F(BlocksTest, TheNextBlockComesWhileOneIsHeldAndNoneComesInVain) {
  for (const size_t block : {0, 1, 2}) {
    const auto hold = weights_.Use(block);
    EXPECT_EQ(BlocksBrought(), std::min<size_t>(block + 2, 3));
  }
  for (const size_t block : {2, 1, 0}) {
    const auto hold = weights_.Use(block);
    ExpectValues(block);
  }
  EXPECT_EQ(BlocksBrought(), 4u);
}

// Promise: Where weights are changes no bit.
TEST_F(BlocksTest, ChangedWeightsComeAgain) {
  for (const int64_t first : {0, 1}) {
    flat_.narrow(0, first * kLength, 1).add_(7);  // In the block, and in its neighbour.
    const auto hold = weights_.Use(0);
    ExpectValues(0);
  }
  flat_.add_(1);
  weights_.BringRest();
  ExpectValues(3);
}

TEST_F(BlocksTest, TwoBlocksAreHeldAtATimeAndNoLeafIsInTwo) {
  const auto one = weights_.Use(0), two = weights_.Use(2), again = weights_.Use(2);
  ExpectValues(0);
  ExpectValues(2);
  EXPECT_DEATH((void)weights_.Use(1), "more blocks are held");
  OffloadedWeights weights(at::kCPU);
  const at::Tensor leaf = weights.Leaf(flat_, false);
  weights.AddBlock({leaf});
  EXPECT_DEATH(weights.AddBlock({leaf}), "in two blocks");
}

}  // namespace
}  // namespace oxbow::model
