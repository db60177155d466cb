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

// A group whose head is the entry `entry` of this prompt.
AskedGroup WithHead(uint64_t prompt, uint64_t entry = 1) {
  AskedGroup asked{.prompt = {}, .kind = MixedGroup{{.entry = EntryId(entry)}}};
  asked.prompt.set_id(prompt);
  return asked;
}

TEST(StepPlanTest, GroupsAreNumberedByStepAndPromptsAreDistinctAcrossPassBoundaries) {
  PromptOrder order(Prompts(11), 3);
  RandomStream random({.seed = 1});
  for (uint64_t step = 0; step < 200; ++step) {
    StepDraft draft{.step = LearnerStep(step), .groups = 8};
    for (uint64_t n = random.NextBelow(4); n > 0; --n) {
      draft.spread.push_back(WithHead(100 + random.NextBelow(11), n));  // Repeats happen.
    }
    const StepPlan plan = PlanStep(draft, order);
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
  std::vector<AskedGroup> waiting(3);
  for (size_t i = 0; i < 3; ++i) {
    waiting[i].kind = AgainGroup{EntryId(i + 1)};
    waiting[i].prompt.set_id(i == 0 ? 104 : 104 + i);  // The first has a head already.
  }
  const StepPlan plan = PlanStep(
      {.step = LearnerStep(3), .groups = 4, .spread = {WithHead(104)}, .next = waiting}, order);
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_NE(plan.groups[0].head(), nullptr);
  ASSERT_NE(plan.groups[1].As<AgainGroup>(), nullptr);
  EXPECT_EQ(plan.groups[1].As<AgainGroup>()->waited, EntryId(2));
  EXPECT_EQ(plan.groups[1].prompt.id(), 105u);
  ASSERT_NE(plan.groups[2].As<AgainGroup>(), nullptr);
  EXPECT_EQ(plan.groups[2].As<AgainGroup>()->waited, EntryId(3));
  EXPECT_NE(plan.groups[3].As<FreshGroup>(), nullptr);
  EXPECT_EQ(PlanStep({.step = LearnerStep(4), .groups = 2, .next = waiting}, order).groups.size(),
            2u);
}

// Ranks hold neighbouring groups: 32 ranks must not find all heads on four of them.
TEST(StepPlanTest, HeadsAreSpreadEvenly) {
  for (const uint32_t count : {1u, 2u, 5u, 6u, 48u}) {
    PromptOrder order(Prompts(100), 3);
    StepDraft draft{.step = LearnerStep(3), .groups = 48};
    for (uint32_t h = 0; h < count; ++h) draft.spread.push_back(WithHead(200 + h));
    const StepPlan plan = PlanStep(draft, order);
    ASSERT_EQ(plan.groups.size(), 48u);
    for (const uint32_t ranks : {2u, 3u, 8u, 16u}) {
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        double own = 0;
        for (uint32_t g = rank * 48 / ranks; g < (rank + 1) * 48 / ranks; ++g) {
          own += plan.groups[g].head() != nullptr ? 1 : 0;
        }
        EXPECT_LE(std::abs(own - static_cast<double>(count) / ranks), 1) << count << " " << ranks;
      }
    }
  }
}

TEST(StepPlanTest, AllGroupsHaveTheStepsWindow) {
  PromptOrder order(Prompts(20), 3);
  const std::vector<bool> window = {false, true, true, false};
  const StepPlan plan = PlanStep(
      {.step = LearnerStep(3), .groups = 4, .sde = window, .spread = {WithHead(104)}}, order);
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
  const std::vector<bool> window = {false, true};
  std::vector<PlannedGroup> now = PlanStep({.step = LearnerStep(2),
                                            .groups = 4,
                                            .dynamic_sampling_max = 3,
                                            .sde = window,
                                            .spread = {WithHead(104)}},
                                           order)
                                      .groups;
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
    EXPECT_NE(all[i].As<FreshGroup>(), nullptr);
  }
}

// Promise: Without replay a step is Flow-GRPO.
TEST(StepPlanTest, WithoutEntriesEveryGroupIsFreshAndEqualToFractionZero) {
  PromptOrder with(Prompts(20), 3);
  PromptOrder without(Prompts(20), 3);
  const StepPlan a = PlanStep({.step = LearnerStep(0), .groups = 8}, with);
  for (size_t i = 0; i < 8; ++i) EXPECT_NE(a.groups[i].As<FreshGroup>(), nullptr);
  const StepPlan b = PlanStep({.step = LearnerStep(0), .groups = 8}, without);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(a.groups[i].prompt.id(), b.groups[i].prompt.id());
}

}  // namespace
}  // namespace oxbow::learner
