// SPDX-License-Identifier: Apache-2.0
#include "cli/run/work_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace oxbow::cli {
namespace {

class WorkProgressTest : public ::testing::Test {
 protected:
  WorkProgress::Options On(std::optional<size_t> columns) {
    return {.command = "eval", .columns = [columns] { return columns; }};
  }

  FakeClock clock_;
  std::ostringstream out_;
};

// Promise: A first run looks as at real sizes.
TEST_F(WorkProgressTest, WithoutATerminalALineSaysWhatIsDoneAndHowMuchIsLeft) {
  WorkProgress progress(On(std::nullopt), clock_, out_, /*runs=*/false);
  progress.Begin("loading the model");
  clock_.Advance(absl::Seconds(12));
  progress.ShowNow();
  progress.Begin("drawing");
  progress.Count(0, 128, "pictures");
  clock_.Advance(absl::Seconds(10));
  progress.ShowNow();
  progress.Count(32.5, 128, "pictures");
  progress.ShowNow();
  EXPECT_EQ(out_.str(),
            "eval  loading the model  0:12\n"
            "eval  drawing 0/128 pictures  0:10\n"
            "eval  drawing 32/128 pictures  3.25 pictures/s  ETA 0:29\n");
}

TEST_F(WorkProgressTest, OnATerminalOneLineFitsItAndIsGoneAtTheEnd) {
  {
    WorkProgress progress(On(20), clock_, out_, /*runs=*/false);
    progress.Begin("loading the model of a long name");
    progress.ShowNow();
  }
  EXPECT_EQ(out_.str(), "\r\033[Keval  loading th...\r\033[K");
}

TEST_F(WorkProgressTest, WhatIsOverAtOnceSaysNothing) {
  { const WorkProgress progress(On(std::nullopt), clock_, out_, /*runs=*/true); }
  EXPECT_EQ(out_.str(), "");
}

}  // namespace
}  // namespace oxbow::cli
