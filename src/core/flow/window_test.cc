// SPDX-License-Identifier: Apache-2.0
#include "core/flow/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/golden/golden.h"

namespace oxbow::flow {
namespace {

using ::oxbow::testing::FlowGolden;
using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr uint64_t kSeed = 5;

WindowKind KindNamed(const std::string& name) {
  if (name == "decay") return WindowKind::kDecay;
  return name == "exp_decay" ? WindowKind::kExpDecay : WindowKind::kProgressive;
}

WindowPlan Plan(WindowKind kind, int begin, int end, int size) {
  return {.kind = kind, .begin = begin, .end = end, .size = size};
}

// The published state machine, executed iteration by iteration.
TEST(WindowTest, SlidingWindowsAreMixGrposAtEveryStep) {
  for (const auto& r : FlowGolden()["windows"]) {
    const WindowPlan plan{.kind = KindNamed(r["kind"]),
                          .begin = 0,
                          .end = r["end"],
                          .size = r["size"],
                          .stride = r["stride"],
                          .hold = r["hold"]};
    uint64_t step = 0;
    std::set<int> reached;
    for (const auto& window : r["windows"]) {
      std::vector<int> expected;
      for (int i = window[0]; i < window[1]; ++i) expected.push_back(i);
      reached.insert(expected.begin(), expected.end());
      ASSERT_EQ(WindowAt(plan, kSeed, step), expected) << Describe(plan) << ", step " << step;
      ++step;
    }
    for (const int i : reached) EXPECT_THAT(ReachableSteps(plan), ::testing::Contains(i));
  }
}

TEST(WindowTest, AllAndFixedNeverMove) {
  WindowPlan plan = Plan(WindowKind::kFixed, 0, 9, 1);
  plan.steps = {1, 2, 5};
  for (const uint64_t step : {0, 1, 77, 100'000}) {
    EXPECT_THAT(WindowAt(Plan(WindowKind::kAll, 2, 5, 1), kSeed, step), ElementsAre(2, 3, 4));
    EXPECT_THAT(WindowAt(plan, kSeed, step), ElementsAre(1, 2, 5));
  }
  EXPECT_THAT(ReachableSteps(plan), ElementsAre(1, 2, 5));
  EXPECT_EQ(LongestSpan(plan), 5);
}

TEST(WindowTest, RandomWindowsAreUniformOverTheirPlaces) {
  const WindowPlan plan = Plan(WindowKind::kRandom, 1, 7, 3);
  std::map<int, int> firsts;
  constexpr int kDraws = 8000;
  for (uint64_t step = 0; step < kDraws; ++step) {
    const std::vector<int> window = WindowAt(plan, kSeed, step);
    ASSERT_THAT(window, ElementsAre(window[0], window[0] + 1, window[0] + 2));
    ++firsts[window[0]];
  }
  ASSERT_THAT(firsts, SizeIs(4));  // 1 .. 4
  // Four places of probability 1/4: a standard deviation of 39 draws.
  for (const auto& [first, count] : firsts) EXPECT_NEAR(count, kDraws / 4, 160) << first;
  EXPECT_EQ(firsts.begin()->first, 1);
  EXPECT_EQ(firsts.rbegin()->first, 4);
}

TEST(WindowTest, SubsetsAreUniformOverAllSubsets) {
  const WindowPlan plan = Plan(WindowKind::kSubset, 1, 6, 2);
  std::map<std::vector<int>, int> seen;
  constexpr int kDraws = 10'000;
  for (uint64_t step = 0; step < kDraws; ++step) ++seen[WindowAt(plan, kSeed, step)];
  ASSERT_THAT(seen, SizeIs(10));  // 5 choose 2
  for (const auto& [window, count] : seen) {
    EXPECT_LT(window[0], window[1]);
    EXPECT_NEAR(count, kDraws / 10, 130);
  }
}

// Worker, resumed run and trainer compute the window independently and must agree.
TEST(WindowTest, AWindowIsAFunctionOfSettingsSeedAndStep) {
  for (const auto kind : {WindowKind::kRandom, WindowKind::kSubset}) {
    WindowPlan plan = Plan(kind, 0, 12, 4);
    plan.hold = 3;
    int moved = 0, other_seed = 0;
    for (uint64_t step = 0; step < 300; ++step) {
      const std::vector<int> window = WindowAt(plan, kSeed, step);
      EXPECT_EQ(window, WindowAt(plan, kSeed, step));
      EXPECT_EQ(window, WindowAt(plan, kSeed, step - step % 3)) << "drawn every third step";
      moved += window != WindowAt(plan, kSeed, step + 3);
      other_seed += window != WindowAt(plan, kSeed + 1, step);
    }
    EXPECT_GT(moved, 200);
    EXPECT_GT(other_seed, 200);
  }
}

TEST(WindowTest, StridesLongerThanTheWindowLeaveGaps) {
  WindowPlan plan = Plan(WindowKind::kProgressive, 1, 9, 2);
  plan.stride = 3;
  EXPECT_THAT(ReachableSteps(plan), ElementsAre(1, 2, 4, 5, 7, 8));
  EXPECT_EQ(LongestSpan(plan), 2);
}

TEST(WindowTest, SpanCoversTheTransitionsOfTheWindowAndNoMore) {
  const auto span = [](const std::vector<int>& steps) { return SpanOf(StepFlags(steps, 10)); };
  EXPECT_EQ(span({0, 1, 2}).first, 0);
  EXPECT_EQ(span({0, 1, 2}).count, 4);
  EXPECT_EQ(span({4}).first, 4);
  EXPECT_EQ(span({4}).count, 2);
  EXPECT_EQ(span({3, 6}).end(), 8);
  EXPECT_EQ(span({}).count, 0);
}

TEST(WindowTest, WhatIsSentStartsAtTheWindowOrIsTheFinalLatentAlone) {
  const std::vector<bool> sde = StepFlags({2, 3}, 10);
  EXPECT_EQ(SentSpan(SentLatents::kTransitions, sde).first, 2);
  EXPECT_EQ(SentSpan(SentLatents::kTransitions, sde).end(), 5);
  EXPECT_EQ(SentSpan(SentLatents::kToTheEnd, sde).first, 2);
  EXPECT_EQ(SentSpan(SentLatents::kToTheEnd, sde).end(), 11);
  for (const std::vector<bool>& flags : {sde, StepFlags({}, 10)}) {
    EXPECT_EQ(SentSpan(SentLatents::kFinal, flags).first, 10);
    EXPECT_EQ(SentSpan(SentLatents::kFinal, flags).count, 1);
  }
  EXPECT_EQ(SentSpan(SentLatents::kToTheEnd, StepFlags({}, 10)).first, 10);
  EXPECT_EQ(SentSpan(SentLatents::kToTheEnd, StepFlags({}, 10)).count, 1);
}

}  // namespace
}  // namespace oxbow::flow
