// SPDX-License-Identifier: Apache-2.0
// Why a run was stopped comes back; anything else in the file is no reason.
#include "run/stop_record.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

TEST(StopRecordTest, ComesBackUntilItIsRemoved) {
  const testing::ScopedDirectory directory;
  EXPECT_FALSE(ReadStop(directory.path()).has_value());
  ASSERT_TRUE(WriteStop(directory.path(), {60, "eval/reward_mean is 0.08, \"low\""}).ok());
  const auto stop = ReadStop(directory.path());
  ASSERT_TRUE(stop.has_value());
  EXPECT_EQ(stop->step, 60u);
  EXPECT_EQ(stop->reason, "eval/reward_mean is 0.08, \"low\"");
  RemoveStop(directory.path());
  EXPECT_FALSE(ReadStop(directory.path()).has_value());
}

TEST(StopRecordTest, AFileOfAnotherKindIsNoReason) {
  const testing::ScopedDirectory directory;
  for (const char* const text : {"", "[]", "{}", R"({"step": -1, "reason": "a"})",
                                 R"({"step": 1, "reason": 2})", R"({"step": 1})"}) {
    ASSERT_TRUE(WriteFileAtomically(directory.path() / "stopped.json", text).ok());
    EXPECT_FALSE(ReadStop(directory.path()).has_value()) << text;
  }
}

}  // namespace
}  // namespace oxbow::run
