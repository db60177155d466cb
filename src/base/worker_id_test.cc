// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "base/ids.h"

namespace oxbow {
namespace {

TEST(WorkerIdTest, NamesOfHostsPodsAndProcessesAreTaken) {
  for (const std::string id : {"a", "gpu-7.rack_3-4711-09af", "ns/pod:0", "x@y"}) {
    EXPECT_TRUE(CheckWorkerId(id).ok()) << id;
  }
  EXPECT_TRUE(CheckWorkerId(std::string(128, 'w')).ok());
}

TEST(WorkerIdTest, WhatCouldForgeALineOrFillATableIsRefusedInOneLine) {
  for (const std::string& id : {std::string(), std::string("a b"), std::string("a\nE forged"),
                                std::string("a=b"), std::string("\"a\""), std::string("a\0b", 3),
                                std::string("\xc3\xa9"), std::string(129, 'w')}) {
    const absl::Status status = CheckWorkerId(id);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << id;
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(WorkerIdTest, ProcessesOfOneWorkerHaveOneBase) {
  for (const std::string id : {"gpu-a", "gpu-a.1", "gpu-a.12"})
    EXPECT_EQ(BaseWorkerId(id), "gpu-a");
  for (const std::string id : {"10.0.0.7", "gpu-1", "a.b", "a.1b", "a.", "", ".", "1.2"}) {
    EXPECT_EQ(BaseWorkerId(id), id);
  }
}

}  // namespace
}  // namespace oxbow
