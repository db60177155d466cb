// SPDX-License-Identifier: Apache-2.0
// A checkpoint's copy from a GPU while the next updates are queued already: a late device runs
// nothing before somebody waits for it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "core/parallel/host_copy.h"
#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {
namespace {

constexpr int64_t kCopied = 1000;
constexpr int kUpdates = 4;

class HostCopyDeviceTest : public ::testing::Test {
 protected:
  HostCopyDeviceTest() { TheSettings() = {.devices = 2, .mode = Mode::kLate}; }
  ~HostCopyDeviceTest() override {
    SynchronizeDevice(0);
    TheSettings() = {.devices = 2};
  }

  // As another thread sees it, which knows nothing of streams.
  static void ExpectAll(const parallel::HostCopy& copy, float value) {
    std::vector<float> values(kCopied);
    copy.Read(0, std::span<float>(values));
    for (const float each : values) ASSERT_EQ(each, value);
  }

  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

// Promise: A checkpoint is of the step's end, whatever follows.
TEST_F(HostCopyDeviceTest, WhatIsOnTheDeviceIsCopiedAsItWas) {
  at::Tensor flat = at::zeros({kCopied}, gpu_);
  const auto waits = TheLog().Of(0).AllWaits().count;
  std::vector<parallel::HostCopy> copies;
  for (int i = 0; i < kUpdates; ++i) {
    copies.emplace_back(flat);
    flat.add_(1);
  }
  EXPECT_EQ(TheLog().Of(0).AllWaits().count, waits);
  for (int i = kUpdates; i-- > 0;) ExpectAll(copies[static_cast<size_t>(i)], static_cast<float>(i));
}

// Promise: A checkpoint is of the step's end, whatever follows.
TEST_F(HostCopyDeviceTest, WhatIsInHostMemoryIsSharedAndStaysAsItWas) {
  auto moments = parallel::HostCopy::Zeros(kCopied, gpu_);
  const auto waits = TheLog().Of(0).AllWaits().count;
  std::vector<parallel::HostCopy> copies;
  for (int i = 0; i < kUpdates; ++i) {
    copies.push_back(moments);
    at::Tensor part = at::empty({kCopied}, gpu_);
    moments.Read(0, part);
    part.add_(1);
    moments.Write(0, part);
  }
  EXPECT_EQ(TheLog().Of(0).AllWaits().count, waits);
  for (int i = kUpdates; i-- > 0;) ExpectAll(copies[static_cast<size_t>(i)], static_cast<float>(i));
  ExpectAll(moments, kUpdates);
}

}  // namespace
}  // namespace oxbow::rehearsal
