// SPDX-License-Identifier: Apache-2.0
#include "base/trace.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace oxbow {
namespace {

TEST(TraceTest, HeaderIsThatOfTheStandardAndComesBack) {
  const Trace trace{0x0af7651916cd43ddu, 0x8448eb211c80319cu, 0xb7ad6b7169203331u};
  const std::string header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  EXPECT_EQ(Traceparent(trace), header);  // The example of W3C Trace Context, section 3.2.
  EXPECT_EQ(ParseTraceparent(header), trace);
  EXPECT_EQ(TraceId(trace), "0af7651916cd43dd8448eb211c80319c");
}

TEST(TraceTest, WhatIsNoHeaderIsNoTrace) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  for (const std::string& bad :
       {std::string(), good + "-", std::string("01") + good.substr(2),
        std::string("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"),
        std::string("00-00000000000000000000000000000000-b7ad6b7169203331-01"),
        std::string("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"),
        std::string("00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"), good.substr(1)}) {
    EXPECT_FALSE(ParseTraceparent(bad).has_value()) << bad;
  }
}

// Promise: One trace per group.
TEST(TraceTest, IdsFollowFromWhatIsTracedAndDiffer) {
  std::set<std::string> ids;
  for (uint64_t i = 0; i < 1000; ++i) {
    ids.insert(TraceId(TraceOfGroup("digits-1", GroupId(i), LeaseId(7))));
    ids.insert(TraceId(TraceOfStep("digits-1", LearnerStep(i))));
    ids.insert(TraceId(TraceOfGroup("digits-2", GroupId(i), LeaseId(7))));
  }
  EXPECT_EQ(ids.size(), 3000u);
  const Trace first = TraceOfGroup("digits-1", GroupId(5), LeaseId(7));
  const Trace second = TraceOfGroup("digits-1", GroupId(5), LeaseId(8));
  EXPECT_EQ(TraceId(first), TraceId(second)) << "attempts at a group are one trace";
  EXPECT_NE(first.span, second.span);
  EXPECT_EQ(first.high, TraceOfStep("digits-1", LearnerStep(3)).high) << "a run's begin alike";
}

TEST(TraceTest, ScopesNestAndBelongToTheirThread) {
  const Trace outer = TraceOfStep("run", LearnerStep(1));
  const Trace inner = TraceOfStep("run", LearnerStep(2));
  EXPECT_FALSE(CurrentTrace().has_value());
  {
    const TraceScope of_outer(outer);
    {
      const TraceScope of_inner(inner);
      EXPECT_EQ(CurrentTrace(), inner);
      std::thread([] { EXPECT_FALSE(CurrentTrace().has_value()); }).join();
      const TraceScope of_none(std::nullopt);
      EXPECT_EQ(CurrentTrace(), inner);
    }
    EXPECT_EQ(CurrentTrace(), outer);
  }
  EXPECT_FALSE(CurrentTrace().has_value());
}

}  // namespace
}  // namespace oxbow
