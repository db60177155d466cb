// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/trace.h"

namespace oxbow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { ConfigureLog(LogLevel::kInfo, LogFormat::kText, ""); }

  template <typename Write>
  std::string Written(Write write) {
    ::testing::internal::CaptureStderr();
    write();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, JsonIsOneObjectOnOneLineWhateverTheValues) {
  ConfigureLog(LogLevel::kInfo, LogFormat::kJson, "learner");
  const std::string line = Written([] {
    OXBOW_LOG(Warning) << "lease expired" << Field("group", 7) << Field("reason", "a \"b\"\n\\c");
  });
  EXPECT_THAT(line, HasSubstr("\"level\":\"warning\",\"service\":\"learner\","
                              "\"event\":\"lease expired\",\"group\":\"7\","
                              "\"reason\":\"a \\\"b\\\"\\u000a\\\\c\"}\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

// Promise: A worker's leases are its own.
TEST_F(LogTest, NoValueForgesALineOfText) {
  ConfigureLog(LogLevel::kInfo, LogFormat::kText, "learner");
  const std::string line = Written([] {
    OXBOW_LOG(Info) << "worker registered" << Field("worker", "w\nE 12:00 learner: forged\x1b[2J");
  });
  EXPECT_THAT(line, HasSubstr("worker=w\\nE 12:00 learner: forged\\x1b[2J\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST_F(LogTest, LinesUnderATraceCarryIt) {
  ConfigureLog(LogLevel::kInfo, LogFormat::kText, "worker");
  const Trace trace = TraceOfGroup("digits-1", GroupId(7), LeaseId(9));
  const std::string line = Written([&] {
    const TraceScope scope(trace);
    OXBOW_LOG(Info) << "lease taken" << Field("group", 7);
  });
  EXPECT_THAT(line, HasSubstr("worker: lease taken group=7 trace=" + TraceId(trace) + "\n"));
  EXPECT_THAT(Written([] { OXBOW_LOG(Info) << "stopping"; }), Not(HasSubstr("trace")));
}

TEST_F(LogTest, WhatIsBelowTheLevelIsNotWritten) {
  ConfigureLog(LogLevel::kWarning, LogFormat::kText, "worker");
  EXPECT_EQ(Written([] { OXBOW_LOG(Info) << "nothing"; }), "");
}

}  // namespace
}  // namespace oxbow
