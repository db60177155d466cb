// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"

namespace oxbow::learner {
namespace {

TEST(CheckpointWriterTest, WritesWhileItsOwnerGoesOnAndOneAtATime) {
  absl::Notification go;
  std::atomic<int> at_once = 0;
  std::atomic<int> written = 0;
  CheckpointWriter writer([](const absl::Status&) { FAIL(); });
  const auto write = [&]() -> absl::Status {
    EXPECT_EQ(++at_once, 1);
    go.WaitForNotification();
    ++written;
    --at_once;
    return absl::OkStatus();
  };
  ASSERT_TRUE(writer.Begin(write).ok());
  EXPECT_EQ(written, 0) << "Begin does not wait for its own write";
  go.Notify();
  ASSERT_TRUE(writer.Begin(write).ok());
  EXPECT_GE(written, 1) << "the next one waits for the one before";
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(written, 2);
}

TEST(CheckpointWriterTest, AFailureIsReportedAtOnceAndEndsAllLaterWrites) {
  absl::Notification reported;
  absl::Status why;
  CheckpointWriter writer([&](const absl::Status& status) {
    why = status;
    reported.Notify();
  });
  const absl::Status full = absl::ResourceExhaustedError("disk full");
  ASSERT_TRUE(writer.Begin([&] { return full; }).ok());
  reported.WaitForNotification();
  EXPECT_EQ(why, full);
  EXPECT_EQ(writer.Begin([]() -> absl::Status {
    ADD_FAILURE() << "nothing may be written after a failure";
    return absl::OkStatus();
  }),
            full);
  EXPECT_EQ(writer.Finish(), full);
}

TEST(CheckpointWriterTest, TheEndWaitsForTheWriteInProgress) {
  absl::Notification began;
  std::atomic<bool> written = false;
  {
    CheckpointWriter writer([](const absl::Status&) {});
    ASSERT_TRUE(writer
                    .Begin([&] {
                      began.Notify();
                      written = true;
                      return absl::OkStatus();
                    })
                    .ok());
    began.WaitForNotification();
  }
  EXPECT_TRUE(written);
}

TEST(CheckpointWriterTest, WhatAWriteHoldsIsFreedWhenItHasEnded) {
  const auto held = std::make_shared<int>(1);
  CheckpointWriter writer([](const absl::Status&) {});
  ASSERT_TRUE(writer.Begin([held] { return absl::OkStatus(); }).ok());
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace oxbow::learner
