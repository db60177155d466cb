// SPDX-License-Identifier: Apache-2.0
// Weights that come to a GPU while it computes: what a block reads, whichever stream is behind.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace oxbow::rehearsal
