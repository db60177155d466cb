// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/philox.h"

namespace oxbow::learner {
namespace {

std::vector<v1::Prompt> Prompts(size_t count) {
  std::vector<v1::Prompt> prompts(count);
  for (size_t i = 0; i < count; ++i) {
    prompts[i].set_id(100 + i);
    prompts[i].set_text(absl::StrCat("text ", i));
  }
  return prompts;
}

TEST(PromptOrderTest, EachPassTakesEveryPromptOnceInAnotherOrder) {
  PromptOrder order(Prompts(50), /*seed=*/7);
  std::vector<std::vector<uint64_t>> passes(2);
  for (auto& pass : passes) {
    std::set<uint64_t> taken;
    for (int i = 0; i < 50; ++i) pass.push_back(order.TakeNext(taken).id());
    EXPECT_EQ(taken.size(), 50u);
  }
  EXPECT_NE(passes[0], passes[1]);
}

// Promise: Resume continues from the checkpoint.
TEST(PromptOrderTest, PositionIsAllAResumedRunNeeds) {
  PromptOrder order(Prompts(13), 7);
  for (int i = 0; i < 100; ++i) {
    const PromptPosition position = order.position();
    PromptOrder resumed(Prompts(13), 7, position);
    std::set<uint64_t> a;
    std::set<uint64_t> b;
    EXPECT_EQ(order.TakeNext(a).id(), resumed.TakeNext(b).id());
    EXPECT_EQ(order.position(), resumed.position());
  }
}

TEST(PromptOrderTest, SeedsDiffer) {
  std::set<uint64_t> a;
  std::set<uint64_t> b;
  PromptOrder one(Prompts(64), 1);
  PromptOrder two(Prompts(64), 2);
  int equal = 0;
  for (int i = 0; i < 64; ++i) equal += one.TakeNext(a).id() == two.TakeNext(b).id() ? 1 : 0;
  EXPECT_LT(equal, 10);
}

TEST(StepPlanTest, GroupsAreNumberedByStepAndPromptsAreDistinctAcrossPassBoundaries) {
  PromptOrder order(Prompts(11), 3);
  RandomStream random({.seed = 1});
  for (uint64_t step = 0; step < 200; ++step) {
    std::vector<ReplayedHead> heads;
    for (uint64_t n = random.NextBelow(4); n > 0; --n) {
      ReplayedHead drawn;
      drawn.prompt.set_id(100 + random.NextBelow(11));  // Repeats happen.
      drawn.entry = EntryId(n);
      heads.push_back(drawn);
    }
    const StepPlan plan = PlanStep(LearnerStep(step), 8, heads, order);
    ASSERT_EQ(plan.groups.size(), 8u);
    std::set<uint64_t> ids;
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(plan.groups[i].id, GroupId(step * 8 + i));
      EXPECT_EQ(plan.groups[i].step, LearnerStep(step));
      ids.insert(plan.groups[i].prompt.id());
    }
    EXPECT_EQ(ids.size(), 8u);
  }
}

TEST(StepPlanTest, PromptsThatWaitedComeAfterHeadsAndBeforeTheOrder) {
  PromptOrder order(Prompts(20), 3);
  ReplayedHead drawn;
  drawn.prompt.set_id(104);
  std::vector<WaitingPrompt> waiting(3);
  for (size_t i = 0; i < 3; ++i) {
    waiting[i].entry = EntryId(i + 1);
    waiting[i].prompt.set_id(i == 0 ? 104 : 104 + i);  // The first has a head already.
  }
  const StepPlan plan = PlanStep(LearnerStep(3), 4, {drawn}, order, {}, 0, waiting);
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_TRUE(plan.groups[0].head.has_value());
  EXPECT_EQ(plan.groups[1].waited, EntryId(2));
  EXPECT_EQ(plan.groups[1].prompt.id(), 105u);
  EXPECT_EQ(plan.groups[2].waited, EntryId(3));
  EXPECT_EQ(plan.groups[3].waited, std::nullopt);
  EXPECT_EQ(PlanStep(LearnerStep(4), 2, {}, order, {}, 0, waiting).groups.size(), 2u);
}

// Ranks hold neighbouring groups: 32 ranks must not find all heads on four of them.
TEST(StepPlanTest, HeadsAreSpreadEvenly) {
  for (const uint32_t count : {1u, 2u, 5u, 6u, 48u}) {
    PromptOrder order(Prompts(100), 3);
    std::vector<ReplayedHead> heads(count);
    for (uint32_t h = 0; h < count; ++h) heads[h].prompt.set_id(200 + h);
    const StepPlan plan = PlanStep(LearnerStep(3), 48, heads, order);
    ASSERT_EQ(plan.groups.size(), 48u);
    for (const uint32_t ranks : {2u, 3u, 8u, 16u}) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        double own = 0;
        for (uint32_t g = rank * 48 / ranks; g < (rank + 1) * 48 / ranks; ++g) {
          own += plan.groups[g].head.has_value() ? 1 : 0;
        }
        EXPECT_LE(std::abs(own - static_cast<double>(count) / ranks), 1) << count << " " << ranks;
      }
    }
  }
}

TEST(StepPlanTest, AllGroupsHaveTheStepsWindow) {
  PromptOrder order(Prompts(20), 3);
  ReplayedHead drawn;
  drawn.prompt.set_id(104);
  const std::vector<bool> window = {false, true, true, false};
  const StepPlan plan = PlanStep(LearnerStep(3), 4, {drawn}, order, window);
  for (const PlannedGroup& group : plan.groups) EXPECT_EQ(group.sde, window);
}

// Promise: Dynamic sampling changes no promise.
TEST(PromptOrderTest, ExtraPromptsBelongToTheStepAndLeaveTheOrderAlone) {
  const PromptOrder order(Prompts(20), 7);
  const PromptOrder later(Prompts(20), 7, {.pass = 3, .taken = 5});
  std::set<uint64_t> once{100, 101}, twice{100, 101}, other{100, 101};
  std::vector<uint64_t> whole, pieces;
  for (const v1::Prompt& prompt : order.TakeExtra(LearnerStep(4), 7, once))
    whole.push_back(prompt.id());
  for (const size_t count : {3, 4}) {
    for (const v1::Prompt& prompt : later.TakeExtra(LearnerStep(4), count, twice)) {
      pieces.push_back(prompt.id());
    }
  }
  EXPECT_EQ(whole.size(), 7u);
  EXPECT_EQ(whole, pieces) << "neither the position nor the rounds matter";
  EXPECT_EQ(once.size(), 9u) << "all are new";
  EXPECT_EQ(order.position(), PromptPosition());
  std::vector<uint64_t> next;
  for (const v1::Prompt& prompt : order.TakeExtra(LearnerStep(5), 7, other))
    next.push_back(prompt.id());
  EXPECT_NE(whole, next);
  EXPECT_EQ(order.TakeExtra(LearnerStep(4), 99, once).size(), 11u) << "no prompt twice";
}

TEST(StepPlanTest, RefillsTakeThePlacesAndTheIdsAfterTheStepsOwn) {
  PromptOrder order(Prompts(12), 3);
  ReplayedHead drawn;
  drawn.prompt.set_id(104);
  const std::vector<bool> window = {false, true};
  std::vector<PlannedGroup> now =
      PlanStep(LearnerStep(2), 4, {drawn}, order, window, /*dynamic_sampling_max=*/3).groups;
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(now[i].id, GroupId(2 * 7 + i));
    EXPECT_EQ(now[i].place, i);
  }
  std::set<uint64_t> taken;
  for (const PlannedGroup& group : now) taken.insert(group.prompt.id());
  const auto first = PlanRefill(now, {0, 3}, 0, 3, order, taken);
  ASSERT_EQ(first.size(), 2u);
  const auto second = PlanRefill(now, {0, 3}, 2, 3, order, taken);
  ASSERT_EQ(second.size(), 1u) << "one is left of three";
  EXPECT_TRUE(PlanRefill(now, {3}, 3, 3, order, taken).empty());
  EXPECT_EQ(taken.size(), 7u) << "seven prompts";
  const std::vector<PlannedGroup> all = {first[0], first[1], second[0]};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].id, GroupId(2 * 7 + 4 + i));
    EXPECT_EQ(all[i].place, i == 1 ? 3u : 0u);
    EXPECT_EQ(all[i].step, LearnerStep(2));
    EXPECT_EQ(all[i].sde, window);
    EXPECT_FALSE(all[i].head.has_value());
  }
}

// Promise: Without replay a step is Flow-GRPO.
TEST(StepPlanTest, WithoutEntriesEveryGroupIsFreshAndEqualToFractionZero) {
  PromptOrder with(Prompts(20), 3);
  PromptOrder without(Prompts(20), 3);
  const StepPlan a = PlanStep(LearnerStep(0), 8, {}, with);
  for (size_t i = 0; i < 8; ++i) EXPECT_FALSE(a.groups[i].head.has_value());
  const StepPlan b = PlanStep(LearnerStep(0), 8, {}, without);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(a.groups[i].prompt.id(), b.groups[i].prompt.id());
}

}  // namespace
}  // namespace oxbow::learner
