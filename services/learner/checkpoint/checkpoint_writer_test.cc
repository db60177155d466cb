// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"

namespace oxbow::learner {
namespace {

// Promise: Checkpoints have any size and take one copy.
TEST(CheckpointWriterTest, WritesWhileItsOwnerGoesOnAndOneAtATime) {
  absl::Notification go;
  std::atomic<int> at_once = 0;
  std::atomic<int> written = 0;
  CheckpointWriter writer;
  const auto write = [&]() -> absl::Status {
    EXPECT_EQ(++at_once, 1);
    go.WaitForNotification();
    ++written;
    --at_once;
    return absl::OkStatus();
  };
  writer.Begin(write);
  EXPECT_FALSE(writer.Ended().has_value());
  EXPECT_EQ(written, 0) << "Begin does not wait for its own write";
  go.Notify();
  writer.Begin(write);
  EXPECT_GE(written, 1) << "the next one waits for the one before";
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(written, 2);
}

// Promise: Checkpoints have any size and take one copy.
TEST(CheckpointWriterTest, AFailureIsOfItsWriteAloneAndTheNextOneIsWritten) {
  CheckpointWriter writer;
  const absl::Status full = absl::ResourceExhaustedError("disk full");
  writer.Begin([&] { return full; });
  EXPECT_EQ(writer.Finish(), full);
  EXPECT_EQ(writer.Ended(), full);
  writer.Begin([] { return absl::OkStatus(); });
  EXPECT_TRUE(writer.Finish().ok());
}

TEST(CheckpointWriterTest, TheEndWaitsForTheWriteInProgress) {
  absl::Notification began;
  std::atomic<bool> written = false;
  {
    CheckpointWriter writer;
    writer.Begin([&] {
      began.Notify();
      written = true;
      return absl::OkStatus();
    });
    began.WaitForNotification();
  }
  EXPECT_TRUE(written);
}

TEST(CheckpointWriterTest, WhatAWriteHoldsIsFreedWhenItHasEnded) {
  const auto held = std::make_shared<int>(1);
  CheckpointWriter writer;
  writer.Begin([held] { return absl::OkStatus(); });
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace oxbow::learner
