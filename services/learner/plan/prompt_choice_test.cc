// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/prompt_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/philox.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"
#include "services/learner/plan/step_plan.h"

namespace oxbow::learner {
namespace {

constexpr uint32_t kGroups = 4;
constexpr uint32_t kGroupSize = 8;
constexpr uint32_t kExtraMax = 2;
constexpr uint64_t kSteps = 60;

std::vector<v1::Prompt> Prompts(size_t count) {
  std::vector<v1::Prompt> prompts(count);
  for (size_t i = 0; i < count; ++i) prompts[i].set_id(Mix64(i + 1));
  return prompts;
}

// The samples of a group: right with a rate that belongs to the prompt. A function of its id.
v1::Group Sampled(GroupId id, const v1::Prompt& prompt, uint64_t seed) {
  v1::Group group;
  group.set_group_id(id.value);
  *group.mutable_prompt() = prompt;
  const double rate = static_cast<double>(prompt.id() % 5) / 4;
  RandomStream random({.seed = seed, .group = id.value});
  for (uint32_t i = 0; i < kGroupSize; ++i) {
    group.add_trajectories()->set_reward(random.NextUniform() < rate ? 1 : 0);
  }
  return group;
}

void See(PromptChoice& choice, uint64_t step, v1::Group group) {
  choice.See(LearnerStep(step), {.group = std::move(group), .attempt = 0, .bytes = {}}, {});
}

void Follow(PromptChoice& choice, uint64_t step) {
  StepRule::Numbers numbers;
  choice.Follow(LearnerStep(step), {}, numbers);
}

// A run of plans, refills and commits with a staleness budget, from a checkpoint on.
struct ChosenRun {
  PromptChoice::Options options;
  PromptOrder order;
  PromptChoice choice;
  uint64_t committed;
  uint64_t planned;
  std::map<uint64_t, std::vector<PlannedGroup>> plans;
  std::map<uint64_t, std::vector<uint64_t>> prompts;  // By step; extra ones last.

  ChosenRun(PromptChoice::Options o, uint64_t from, rl::SuccessRecord known)
      : options(o),
        order(Prompts(24), o.run_seed),
        choice(o, order, std::move(known)),
        committed(from),
        planned(from) {}

  void Plan() {
    for (; planned < kSteps && planned <= committed + options.staleness_max; ++planned) {
      StepDraft draft{.step = LearnerStep(planned),
                      .committed = committed,
                      .groups = kGroups,
                      .dynamic_sampling_max = kExtraMax};
      ASSERT_TRUE(choice.Plan(draft).ok());
      StepPlan plan = PlanStep(draft, order);
      for (const PlannedGroup& group : plan.groups) prompts[planned].push_back(group.prompt.id());
      plans[planned] = std::move(plan.groups);
    }
  }

  // `turned`: the groups are told in another order, as other ranks would.
  void Step(bool turned = false) {
    Plan();
    std::vector<PlannedGroup> groups = plans[committed];
    std::set<uint64_t> taken(prompts[committed].begin(), prompts[committed].end());
    choice.PlanExtra(LearnerStep(committed));
    for (const PlannedGroup& extra : PlanRefill(groups, {1, 3}, 0, kExtraMax, order, taken)) {
      prompts[committed].push_back(extra.prompt.id());
      groups.push_back(extra);
    }
    if (turned) std::reverse(groups.begin(), groups.end());
    for (const PlannedGroup& group : groups) {
      See(choice, committed, Sampled(group.id, group.prompt, options.run_seed));
    }
    Follow(choice, committed++);
  }
};

// Promise: Chosen prompts follow from the seed. With `prompts.choice: learnable` a run that is
// resumed at any step, of any staleness budget and any number of ranks, takes the same prompts: the
// plan of a step knows the outcomes of the steps before it less the budget, and nothing else. All
// prompts of a step are distinct, and none is given up.
TEST(PromptChoiceTest, ARunThatIsResumedAnywhereChoosesTheSamePrompts) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  for (const uint64_t staleness : {0, 1, 3}) {
    const PromptChoice::Options options{
        .learnable = true, .run_seed = seed, .staleness_max = staleness};
    ChosenRun whole(options, 0, {});
    std::vector<rl::SuccessRecord> checkpoints;
    while (whole.committed < kSteps) {
      whole.Plan();  // A checkpoint is written after the next plans.
      checkpoints.push_back(whole.choice.known());
      whole.Step();
    }
    for (uint64_t from = 0; from < kSteps; from += 7) {
      ChosenRun resumed(options, from, checkpoints[from]);
      while (resumed.committed < kSteps) resumed.Step();
      for (uint64_t step = from; step < kSteps; ++step) {
        ASSERT_EQ(resumed.prompts[step], whole.prompts[step])
            << "step " << step << ", resumed at " << from << ", staleness " << staleness;
      }
      EXPECT_EQ(resumed.choice.known(), whole.choice.known());
    }
  }
}

// Promise: Chosen prompts follow from the seed.
TEST(PromptChoiceTest, TheOrderInWhichGroupsAreToldDoesNotMatter) {
  const PromptChoice::Options options{.learnable = true, .run_seed = 5, .staleness_max = 1};
  ChosenRun one(options, 0, {});
  ChosenRun other(options, 0, {});
  while (one.committed < kSteps) {
    one.Step();
    other.Step(/*turned=*/true);
  }
  EXPECT_EQ(one.prompts, other.prompts);
}

// Promise: Chosen prompts follow from the seed.
TEST(PromptChoiceTest, PromptsThatAreSometimesRightComeMoreOftenAndNoneIsGivenUp) {
  ChosenRun run({.learnable = true, .run_seed = 11}, 0, {});
  while (run.committed < kSteps) run.Step();
  std::map<uint64_t, double> of_rate;  // How often a prompt of rate i / 4 is taken, on the average.
  std::map<uint64_t, double> prompts;
  std::set<uint64_t> seen;
  for (const v1::Prompt& prompt : Prompts(24)) ++prompts[prompt.id() % 5];
  for (const auto& [step, ids] : run.prompts) {
    EXPECT_EQ(std::set<uint64_t>(ids.begin(), ids.end()).size(), kGroups + kExtraMax) << step;
    for (const uint64_t id : ids) of_rate[id % 5] += 1 / prompts[id % 5];
    seen.insert(ids.begin(), ids.end());
  }
  EXPECT_GT(of_rate[2], 1.5 * of_rate[0]);
  EXPECT_GT(of_rate[2], 1.5 * of_rate[4]);
  EXPECT_EQ(seen.size(), 24u);
}

TEST(PromptChoiceTest, OnlyFreshSamplesWithARewardCount) {
  PromptOrder order(Prompts(3), 1);
  PromptChoice choice({.learnable = true}, order, {});
  v1::Group group;
  group.mutable_prompt()->set_id(7);
  group.add_trajectories()->set_reward(1);
  group.add_trajectories()->set_reward_failed(true);
  v1::Trajectory& replayed = *group.add_trajectories();
  replayed.set_reward(1);
  replayed.set_replayed(true);
  group.add_trajectories()->set_reward(0);
  See(choice, 2, group);
  See(choice, 2, v1::Group());
  Follow(choice, 2);
  const rl::SuccessRecord::Evidence known = choice.known().KnownBefore(LearnerStep(3));
  ASSERT_EQ(known.size(), 1u);
  ASSERT_EQ(known.count(PromptId(7)), 1u);
  EXPECT_NEAR(known.at(PromptId(7)).successes, 1, 1e-12);
  EXPECT_NEAR(known.at(PromptId(7)).failures, 1, 1e-12);
}

TEST(PromptChoiceTest, AShuffledRunIsLeftAsItIs) {
  PromptOrder order(Prompts(24), 3);
  PromptOrder plain(Prompts(24), 3);
  PromptChoice choice({.run_seed = 3}, order, {});
  for (uint64_t step = 0; step < 20; ++step) {
    StepDraft draft{.step = LearnerStep(step)};
    ASSERT_TRUE(choice.Plan(draft).ok());
    std::set<uint64_t> a, b;
    EXPECT_EQ(order.TakeNext(a).id(), plain.TakeNext(b).id());
    See(choice, step, Sampled(GroupId(step), Prompts(1)[0], 3));
    Follow(choice, step);
  }
  EXPECT_EQ(order.position(), plain.position());
  EXPECT_TRUE(choice.known().empty());
}

// A resumed run has the numbers of a whole one.
TEST(PromptProgressRuleTest, NumbersFollowTheCommittedGroupsAndSurviveAResume) {
  const auto see = [](PromptProgressRule& rule, uint64_t prompt, std::vector<double> rewards) {
    v1::Group group;
    group.mutable_prompt()->set_id(prompt);
    for (const double reward : rewards) group.add_trajectories()->set_reward(reward);
    v1::Trajectory& replayed = *group.add_trajectories();
    replayed.set_replayed(true);
    replayed.set_reward(2);
    rule.See(LearnerStep(0), {.group = std::move(group), .attempt = 0, .bytes = {}}, {});
  };
  const auto follow = [](PromptProgressRule& rule) {
    StepRule::Numbers numbers;
    rule.Follow(LearnerStep(0), {}, numbers);
    return numbers;
  };
  PromptProgressRule whole(/*full_reward=*/2, {});
  see(whole, 1, {0, 0, 0, 0});
  see(whole, 2, {2, 2, 2, 0});
  see(whole, 3, {0, 0});
  StepRule::Numbers numbers = follow(whole);
  EXPECT_EQ(numbers.at("prompts/seen"), 3);
  EXPECT_EQ(numbers.at("prompts/level_0"), 2);
  EXPECT_EQ(numbers.at("prompts/level_3"), 1);
  EXPECT_EQ(numbers.count("prompts/solved_share"), 0u) << "none came again";

  RunState state;
  whole.Save(state);
  PromptProgressRule resumed(2, state.progress);
  for (PromptProgressRule* const rule : {&whole, &resumed}) {
    see(*rule, 1, {2, 2});
    see(*rule, 3, {0, 0});
    see(*rule, 4, {});
  }
  numbers = follow(whole);
  EXPECT_EQ(numbers, follow(resumed));
  EXPECT_EQ(numbers.at("prompts/seen"), 3) << "no reward, no level";
  EXPECT_EQ(numbers.at("prompts/moved_0_5"), 1);
  EXPECT_EQ(numbers.at("prompts/moved_0_0"), 1);
  EXPECT_EQ(numbers.at("prompts/level_5"), 1);
  EXPECT_EQ(numbers.at("prompts/solved_share"), 0.5);
}

}  // namespace
}  // namespace oxbow::learner
