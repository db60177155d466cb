// SPDX-License-Identifier: Apache-2.0
// Weights that come to a GPU while it computes: what a block reads, whichever stream is behind.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include "core/model/host_inputs.h"
#include "core/model/offloaded_weights.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

constexpr int64_t kBlocks = 5, kLength = 70;

class OffloadedDeviceTest : public ::testing::Test {
 protected:
  OffloadedDeviceTest() {
    TheSettings() = {.devices = 2, .mode = Mode::kLate};
    flat_ = at::arange(kBlocks * kLength, weights_.host_options());
    for (int64_t i = 0; i < kBlocks; ++i) {
      leaves_.push_back(weights_.Leaf(flat_.narrow(0, i * kLength, kLength), false));
      weights_.AddBlock({leaves_.back()});
    }
    weights_.EndNetwork();
  }
  ~OffloadedDeviceTest() override {
    SynchronizeDevice(0);
    TheSettings() = {.devices = 2};
  }

  // Twice each block's weights, forward and back, with nothing waited for.
  std::vector<at::Tensor> Doubled() {
    std::vector<at::Tensor> results;
    for (const int64_t block : {0, 1, 2, 3, 4, 4, 3, 2, 1, 0}) {
      const auto hold = weights_.Use(static_cast<size_t>(block));
      results.push_back(leaves_[static_cast<size_t>(block)] * 2);
    }
    return results;
  }
  void ExpectDoubled(const std::vector<at::Tensor>& results) {
    size_t next = 0;
    for (const int64_t block : {0, 1, 2, 3, 4, 4, 3, 2, 1, 0}) {
      EXPECT_TRUE(at::equal(results[next++].cpu(), flat_.narrow(0, block * kLength, kLength) * 2))
          << block;
    }
  }

  at::Tensor flat_;
  model::OffloadedWeights weights_{at::Device(at::kCUDA, 0)};
  std::vector<at::Tensor> leaves_;
};

TEST_F(OffloadedDeviceTest, ABlockComputesAfterItsWeightsCame) {
  const c10::StreamGuard computes(NewStream(0));
  const std::vector<at::Tensor> results = Doubled();
  Synchronize(computes.current_stream());
  ExpectDoubled(results);
}

// Streams of a device catch up in the order in which they were made: the copies first.
TEST_F(OffloadedDeviceTest, NoWeightsComeWhereOthersAreStillRead) {
  const c10::StreamGuard computes(NewStream(0));
  const std::vector<at::Tensor> results = Doubled();
  SynchronizeDevice(0);
  ExpectDoubled(results);
}

// New weights for a path that is half sampled: what was queued computes with those before.
// Promise: Where weights are changes no bit.
TEST_F(OffloadedDeviceTest, SourcesMayBeWrittenOnceTheyWereRead) {
  const c10::StreamGuard computes(NewStream(0));
  const std::vector<at::Tensor> results = Doubled();
  const at::Tensor before = flat_.clone();
  weights_.WaitUntilRead();
  flat_.fill_(-1);
  SynchronizeDevice(0);
  flat_.copy_(before);
  ExpectDoubled(results);
}

// They come to a place of their own first, where the next block's follow.
// Promise: Where weights are changes no bit.
TEST_F(OffloadedDeviceTest, WeightsThatComeInBfloat16AreRoundedOnes) {
  model::OffloadedWeights weights(at::Device(at::kCUDA, 0));
  const at::Tensor flat = at::rand({kBlocks * kLength}, weights.host_options());
  const model::NarrowCopy narrow{
      .values = at::empty_like(flat, weights.host_options().dtype(at::kBFloat16)).copy_(flat),
      .version = static_cast<uint32_t>(flat._version())};
  std::vector<at::Tensor> leaves;
  for (int64_t i = 0; i < kBlocks; ++i) {
    const at::Tensor source = flat.narrow(0, i * kLength, kLength);
    // The first ten of a block are read as they are.
    const at::Tensor exact = weights.Leaf(source.narrow(0, 0, 10), false);
    leaves.push_back(weights.Leaf(source.narrow(0, 10, kLength - 10), false, &narrow));
    weights.AddBlock({exact, leaves.back()});
    leaves.push_back(exact);
  }
  weights.EndNetwork();
  const c10::StreamGuard computes(NewStream(0));
  std::vector<at::Tensor> rounded, exact;
  for (size_t i = 0; i < kBlocks; ++i) {
    const auto hold = weights.Use(i);
    rounded.push_back(leaves[2 * i] * 2);
    exact.push_back(leaves[2 * i + 1] * 2);
  }
  SynchronizeDevice(0);
  const at::Tensor want = flat.to(at::kBFloat16).to(at::kFloat) * 2;
  for (int64_t i = 0; i < kBlocks; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_TRUE(at::equal(rounded[at].cpu(), want.narrow(0, i * kLength + 10, kLength - 10)));
    EXPECT_TRUE(at::equal(exact[at].cpu(), flat.narrow(0, i * kLength, 10) * 2));
  }
}

// A pass's inputs leave while later ones are made in their memory, and come back before they are
// read.
TEST_F(OffloadedDeviceTest, InputsThatWereOnTheHostAreThoseThatLeft) {
  const auto inputs = std::make_shared<model::HostInputs>(at::Device(at::kCUDA, 0));
  const at::TensorOptions there = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const c10::StreamGuard computes(NewStream(0));
  std::vector<std::shared_ptr<model::HostInputs::Kept>> kept;
  for (int block = 0; block < 4; ++block) {
    kept.push_back(
        inputs->Keep({at::full({1000}, block, there) + 0.5, at::full({7}, -block, there)}));
  }
  std::vector<at::Tensor> sums;
  for (int block = 3; block >= 0; --block) {
    const std::vector<at::Tensor> back = kept[static_cast<size_t>(block)]->Take();
    kept.pop_back();
    ASSERT_EQ(back.size(), 2u);
    sums.push_back(back[0] * 2 + back[1].narrow(0, 0, 1));
    (void)at::full({1000}, 99, there);  // In memory that is free again.
  }
  SynchronizeDevice(0);
  for (int block = 3; block >= 0; --block) {
    EXPECT_TRUE(at::equal(sums[static_cast<size_t>(3 - block)].cpu(),
                          at::full({1000}, block + 1, at::kFloat)))
        << block;
  }
}

}  // namespace
}  // namespace oxbow::rehearsal
