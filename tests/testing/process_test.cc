// SPDX-License-Identifier: Apache-2.0
// Tests of the harness: it captures output, ends processes, and no wait is endless.
#include "tests/testing/process.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace oxbow::testing {
namespace {

std::unique_ptr<Process> Shell(const std::string& script) {
  return Process::Start({.argv = {"/bin/sh", "-c", script}, .environment = {"GREETING=hello"}})
      .value();
}

TEST(ProcessTest, CapturesLinesExitCodeAndStderr) {
  const auto process =
      Shell("echo noise; echo READY grpc=$GREETING metrics=m; echo oops >&2; exit 3");
  const auto line = process->WaitForLine("READY", absl::Seconds(10));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(ValueOf(*line, "grpc"), "hello");
  EXPECT_EQ(ValueOf(*line, "port"), "");
  EXPECT_EQ(process->WaitExit(absl::Seconds(10)).value(), 3);
  EXPECT_EQ(process->error_output(), "oops\n");
}

TEST(ProcessTest, LineThatNeverComesIsUnavailableAndSlowIsDeadline) {
  const auto ended = Shell("echo why >&2");
  EXPECT_EQ(ended->WaitForLine("READY", absl::Seconds(10)).status().code(),
            absl::StatusCode::kUnavailable);
  const auto slow = Shell("exec sleep 100");
  EXPECT_EQ(slow->WaitForLine("READY", absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(slow->WaitExit(absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(ProcessTest, KillReportsTheSignal) {
  const auto process = Shell("exec sleep 100");
  EXPECT_GT(process->resident_bytes(), 0u);
  process->Kill(SIGKILL);
  EXPECT_EQ(process->WaitExit(absl::Seconds(10)).value(), -SIGKILL);
  process->Kill(SIGKILL);  // The process has ended already.
  EXPECT_FALSE(process->running());
}

TEST(ProcessTest, MissingBinaryIsNotFound) {
  EXPECT_EQ(Process::Start({.argv = {"/no/such/binary"}}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow::testing
