// SPDX-License-Identifier: Apache-2.0
// Entries that join a step after its groups were sampled, over real stores of one shard or several.
#include "services/learner/replay/stored_successes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

#include "services/learner/checkpoint/checkpoint_manifest.h"
#include "tests/testing/linked_buffer.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// A step of groups with these rewards, of prompts 1, 2, ...
struct Groups : StepGroups {
  Groups(uint64_t step, const std::vector<std::vector<double>>& rewards) {
    for (const auto& of_group : rewards) {
      const uint64_t number = planned.size();
      planned.push_back(PlannedOf(100 * step + number, number + 1, step));
      ReceivedGroup group;
      group.group.set_group_id(planned.back().id.value);
      for (const double reward : of_group) group.group.add_trajectories()->set_reward(reward);
      received.push_back(std::move(group));
      signal.push_back(std::adjacent_find(of_group.begin(), of_group.end(),
                                          std::not_equal_to<>()) != of_group.end());
    }
  }

  // The entry that each group has as its head, 0 for none.
  std::vector<uint64_t> Entries() const {
    std::vector<uint64_t> entries;
    for (const PlannedGroup& group : planned) {
      entries.push_back(group.head() != nullptr ? group.head()->entry.value : 0);
    }
    return entries;
  }

  std::vector<bool> signal;
};

void Join(StepRule& rule, uint64_t step, Groups& groups) {
  const auto signal = [&] { return groups.signal; };
  ASSERT_TRUE(rule.Join(LearnerStep(step), signal, groups).ok());
}

// Late binding, and then `options.added` successes beside the groups.
void JoinBoth(const ReuseOptions& options, uint64_t step, Groups& groups) {
  LateBinding late(options);
  Join(late, step, groups);
  const StoredSuccesses known(options, {});
  AddedSuccesses added(options, known);
  Join(added, step, groups);
}

void Follow(StoredSuccesses& successes, const Groups& groups) {
  for (size_t i = 0; i < groups.received.size(); ++i) {
    successes.See(LearnerStep(1), groups.received[i], groups.planned[i]);
  }
  StepRule::Numbers numbers;
  successes.Follow(LearnerStep(1), groups, numbers);
  EXPECT_EQ(numbers.at("buffer/need"), successes.state().need);
}

std::optional<double> RateOf(const PlannedGroup& planned) {
  const auto* added = planned.As<AddedGroup>();
  return added != nullptr ? std::optional(added->success_rate) : std::nullopt;
}

TEST(StoredSuccessesTest, AHeadWithAllStochasticStepsIsWholeWhereTailsAreNotMadeAgain) {
  Linked linked(/*shard_count=*/1, /*commits_max=*/64, /*kept_steps=*/2);
  v1::ReplayEntry all = Entry(1, 1, 0, 1), some = Entry(2, 2, 0, 1);
  some.mutable_trajectory()->set_sde(2, true);  // Behind the head.
  linked.link->Commit({.step = LearnerStep(0), .offers = {all, some}});
  for (const bool stored_tail : {false, true}) {
    StoredSuccesses successes(
        {.buffer = linked.link.get(), .heads_max = 2, .stored_tail = stored_tail}, {});
    StepDraft draft{.step = LearnerStep(stored_tail ? 2 : 1), .committed = 1, .groups = 4};
    ASSERT_TRUE(successes.Plan(draft).ok());
    ASSERT_EQ(draft.spread.size(), 2u);
    for (const AskedGroup& asked : draft.spread) {
      const bool whole = std::holds_alternative<WholeGroup>(asked.kind);
      EXPECT_EQ(whole, stored_tail && asked.prompt.id() == 1) << asked.prompt.id();
    }
  }
}

// Promise: Reuse beyond a drawn head keeps its bounds.

// Promise: An end of reuse is an end.
TEST(StoredSuccessesTest, AfterTheEndOfReuseNothingJoinsAStep) {
  Linked linked(1);
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(11, 1, 0, 1)}});
  const ReuseOptions options = {
      .buffer = linked.link.get(), .heads_max = 2, .added = 1, .until = 2};
  const StoredSuccesses successes(options, {});
  EXPECT_EQ(successes.heads_wanted(LearnerStep(1), 1), 2u);
  EXPECT_EQ(successes.heads_wanted(LearnerStep(2), 2), 0u);
  Groups last(1, {{0, 0}}), later(2, {{0, 0}});
  JoinBoth(options, 1, last);
  EXPECT_THAT(last.Entries(), ElementsAre(11, 0)) << "bound, and a place of an added one";
  JoinBoth(options, 2, later);
  EXPECT_THAT(later.Entries(), ElementsAre(0));
}

TEST(StoredSuccessesTest, AGroupThatFailedWholeGetsItsPromptsSuccessAsAWholeSample) {
  for (const size_t shards : {1, 3}) {
    Linked linked(shards);
    linked.link->Commit({.step = LearnerStep(0),
                         .offers = {Entry(11, 1, 0, 1), Entry(12, 2, 0, 1), Entry(13, 3, 0, 1)}});
    LateBinding late({.buffer = linked.link.get()});
    // Failed; live; solved; failed, and nothing is stored for it.
    Groups groups(1, {{0, 0, 0}, {0, 1, 0}, {1, 1, 1}, {0, 0, 0}});
    Join(late, 1, groups);
    EXPECT_THAT(groups.Entries(), ElementsAre(11, 0, 0, 0)) << shards << " shards";
    ASSERT_NE(groups.planned[0].As<LateGroup>(), nullptr);
    EXPECT_EQ(groups.planned[0].whole(), &groups.planned[0].As<LateGroup>()->head);
    EXPECT_EQ(groups.planned[0].head()->prompt.id(), 1u);
    EXPECT_FALSE(groups.planned[0].head()->trajectory.latents().data().empty());
    EXPECT_EQ(groups.received.size(), 4u);
    EXPECT_THAT(groups.choice.late, ElementsAre(Pair(GroupId(100), EntryId(11))));
    StepRule::Numbers numbers;
    late.Follow(LearnerStep(1), groups, numbers);
    EXPECT_THAT(numbers, ElementsAre(Pair("train/groups_bound_late", 1)));
  }
}

TEST(StoredSuccessesTest, AMixedGroupKeepsItsHeadAndNoEntryComesTwice) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(11, 1, 0, 1)}});
  Groups groups(1, {{0, 0}, {0, 0}});
  groups.planned[1].kind = MixedGroup{{.entry = EntryId(11)}};
  JoinBoth({.buffer = linked.link.get(), .added = 2}, 1, groups);
  EXPECT_THAT(groups.Entries(), ElementsAre(0, 0, 11, 0)) << "drawn before, so not bound or added";
}

TEST(StoredSuccessesTest, TheNewestSuccessesStandEvenlyBetweenTheGroups) {
  Linked linked(/*shard_count=*/2);
  std::vector<v1::ReplayEntry> offers;
  for (uint64_t i = 1; i <= 5; ++i) offers.push_back(Entry(10 + i, 50 + i, i / 2, 1));
  offers[4].set_group_mean(0.75);
  linked.link->Commit({.step = LearnerStep(3), .offers = offers});
  const ReuseOptions options = {.buffer = linked.link.get(), .added = 4};
  const StoredSuccesses known(options, {.need = 1, .success_rate = 0.25});
  AddedSuccesses added(options, known);
  Groups groups(4, {{0, 1}, {0, 1}});
  Join(added, 4, groups);
  // Births 0, 1, 1, 2, 2 of entries 11 to 15.
  EXPECT_THAT(groups.Entries(), ElementsAre(0, 14, 15, 0, 12, 13));
  EXPECT_EQ(RateOf(groups.planned[1]), 0.25) << "the run's";
  EXPECT_EQ(RateOf(groups.planned[2]), 0.75) << "its prompt's";
  EXPECT_THAT(groups.choice.added, ElementsAre(EntryId(14), EntryId(15), EntryId(12), EntryId(13)));
  EXPECT_EQ(groups.planned[2].prompt.id(), 55u);
  EXPECT_EQ(groups.planned[1].id, GroupId(kAddedGroups + 4 * 4));
  EXPECT_EQ(groups.received[4].group.trajectories_size(), 0);
  EXPECT_EQ(groups.received[4].group.group_id(), groups.planned[4].id.value);
}

// Ranks that hold equal shares of U groups and of K added ones hold them whatever their number.
TEST(StoredSuccessesTest, ThePlacesOfAnEmptyBufferAreThereAndEmpty) {
  Linked linked;
  Groups groups(1, {{0, 1}, {0, 1}});
  JoinBoth({.buffer = linked.link.get(), .added = 2}, 1, groups);
  ASSERT_EQ(groups.planned.size(), 4u);
  EXPECT_THAT(groups.Entries(), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(RateOf(groups.planned[1]), 1) << "nothing is judged";
  EXPECT_EQ(groups.planned[1].prompt.id(), 1u) << "a prompt that exists";
  EXPECT_EQ(RateOf(groups.planned[2]), std::nullopt);
}

// All entries of all shards, as one answer would have them.
std::vector<v1::ReplayEntry> Whole(const Linked& linked) {
  std::vector<v1::ReplayEntry> all;
  for (const auto& shard : linked.shards) {
    buffer::ReplayClient client(shard->server->endpoint(), absl::Seconds(20));
    std::vector<v1::ReplayEntry> of_shard = client.List("").value();
    std::move(of_shard.begin(), of_shard.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.entry_id() < b.entry_id(); });
  std::erase_if(all, [](const auto& e) { return e.trajectory().schedule_id() != kSchedule; });
  return all;
}

std::vector<replay::StoredEntry> RulesOfAll(const std::vector<v1::ReplayEntry>& entries) {
  std::vector<replay::StoredEntry> rules;
  for (const v1::ReplayEntry& entry : entries) {
    rules.push_back({.id = EntryId(entry.entry_id()),
                     .prompt = PromptId(entry.prompt().id()),
                     .birth = LearnerStep(entry.birth_step()),
                     .uses = entry.uses(),
                     .reward = entry.trajectory().reward()});
  }
  return rules;
}

// Entries of mixed births, uses and rewards, some of another schedule, on `prompts` prompts.
void Fill(Linked& linked, uint64_t prompts, std::mt19937& random) {
  for (uint64_t step = 0; step < 6; ++step) {
    ReplayLink::StepCommit commit{.step = LearnerStep(step)};
    for (uint64_t prompt = 1; prompt <= prompts; ++prompt) {
      if (random() % 4 != 0) continue;
      const uint64_t id = 1000 * (step + 1) + prompt;
      commit.offers.push_back(Entry(id, prompt, step, static_cast<double>(random() % 5)));
      if (random() % 5 == 0) commit.offers.back().mutable_trajectory()->set_schedule_id(1);
    }
    for (const v1::ReplayEntry& entry : Whole(linked)) {
      if (random() % 3 == 0) commit.used.push_back(EntryId(entry.entry_id()));
    }
    linked.link->Commit(std::move(commit));
  }
}

TEST(StoredSuccessesTest, WhatJoinsIsWhatAListOfTheWholeBufferWouldSay) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Linked linked(/*shard_count=*/1 + seed % 3);
    Fill(linked, /*prompts=*/20, random);
    const replay::DrawLimits limits{.uses_max = random() % 3, .age_max = random() % 5};
    const uint32_t added = 1 + static_cast<uint32_t>(random() % 9);
    std::vector<std::vector<double>> rewards;
    for (int group = 0; group < 12; ++group) {
      const auto all = static_cast<double>(random() % 3);
      rewards.push_back({all, random() % 4 == 0 ? all + 1 : all});
    }
    Groups groups(6, rewards);
    const std::vector<v1::ReplayEntry> whole = Whole(linked);
    const std::vector<replay::StoredEntry> rules = RulesOfAll(whole);
    groups.planned[3].kind = MixedGroup{{.entry = rules.front().id}};
    std::vector<EntryId> taken = {rules.front().id};
    std::vector<uint64_t> expected;
    for (size_t i = 0; i < rewards.size(); ++i) {
      expected.push_back(i == 3 ? rules.front().id.value : 0);
      if (i == 3 || groups.signal[i]) continue;
      const auto found = replay::EntryForFailure(rules, PromptId(groups.planned[i].prompt.id()),
                                                 rewards[i][0], LearnerStep(6), limits, taken);
      if (!found.has_value()) continue;
      taken.push_back(rules[*found].id);
      expected.back() = rules[*found].id.value;
    }
    std::vector<uint64_t> newest;
    for (const size_t place : replay::NewestEntries(rules, added, LearnerStep(6), limits, taken)) {
      newest.push_back(rules[place].id.value);
    }
    JoinBoth({.buffer = linked.link.get(), .added = added, .limits = limits}, 6, groups);
    std::vector<uint64_t> own;
    std::vector<uint64_t> beside;
    for (const PlannedGroup& group : groups.planned) {
      const uint64_t entry = group.head() != nullptr ? group.head()->entry.value : 0;
      if (group.id.value < kAddedGroups) own.push_back(entry);
      if (group.id.value >= kAddedGroups && entry != 0) beside.push_back(entry);
    }
    EXPECT_EQ(own, expected);
    EXPECT_EQ(beside, newest);
  }
}

// The buffer sends for a step as much of 800 prompts as of 200.
TEST(StoredSuccessesTest, WhatTheBufferSendsDoesNotGrowWithIt) {
  for (const uint64_t prompts : {200, 800}) {
    std::mt19937 random(3);
    Linked linked(/*shard_count=*/2);
    Fill(linked, prompts, random);
    for (const auto& shard : linked.shards) shard->door.ForgetListed();
    Groups groups(6, {{0, 0}, {0, 0}, {0, 1}});
    JoinBoth({.buffer = linked.link.get(), .added = 4}, 6, groups);
    uint64_t sent = 0;
    for (const auto& shard : linked.shards) sent += shard->door.listed();
    EXPECT_GE(sent, 4u);
    // Each shard sends a page: 4, and room for 32 of another schedule. Then the entries of two
    // prompts.
    EXPECT_LE(sent, 2 * (4 + 32) + 2u) << prompts << " prompts";
  }
}

TEST(StoredSuccessesTest, NeedFollowsFreshGroupsAlone) {
  Linked linked;
  StoredSuccesses successes({.buffer = linked.link.get(), .heads_max = 4, .by_need = true}, {});
  EXPECT_EQ(successes.heads_wanted(LearnerStep(0), 0), 4u);
  Groups groups(1, {{0, 0}, {0, 1}, {1, 0}, {0, 0}});
  groups.planned[3].kind = MixedGroup{{.entry = EntryId(1)}};
  Follow(successes, groups);
  // One of three without a signal; rewards 0, .5, .5.
  EXPECT_DOUBLE_EQ(successes.state().need, 1 + 0.4 * (1. / 3 - 1));
  EXPECT_DOUBLE_EQ(successes.state().success_rate, 0.4 / 3);
  const replay::ReuseState before = successes.state();
  groups.planned[0].kind = LateGroup{{.entry = EntryId(2)}};
  Follow(successes, groups);
  EXPECT_DOUBLE_EQ(successes.state().need, before.need + 0.4 * (1. / 3 - before.need))
      << "a group that was bound late did fail";
  Follow(successes, Groups(1, {}));
  EXPECT_NE(successes.state(), before);
  RunState saved;
  successes.Save(saved);
  const StoredSuccesses always({.buffer = linked.link.get(), .heads_max = 4}, saved.reuse);
  EXPECT_EQ(always.heads_wanted(LearnerStep(0), 0), 4u);
}

// With weights of up to two steps of age, steps are planned two steps ahead. Need falls from step
// to step, so each plan has heads of its own.
// Promise: Reuse beyond a drawn head keeps its bounds.
TEST(StoredSuccessesTest, ARunThatIsResumedAnywherePlansTheSameHeads) {
  constexpr uint32_t kAhead = 2;
  constexpr uint64_t kSteps = 7;
  Linked linked;
  const ReuseOptions options = {
      .buffer = linked.link.get(), .heads_max = 16, .by_need = true, .staleness_max = kAhead};
  StoredSuccesses whole(options, {});
  const Groups none(1, {}), alive(1, {{0, 1}, {1, 0}}), half(1, {{0, 1}, {0, 0}});
  const auto follow = [&](StoredSuccesses& successes, uint64_t step) {
    // Step 3 has no fresh group: need stays as it is, and yet a step has passed.
    const Groups& groups = step == 3 ? none : step % 2 == 0 ? alive : half;
    Follow(successes, groups);
  };
  std::vector<uint32_t> heads;
  std::vector<replay::ReuseState> states = {whole.state()};
  for (uint64_t committed = 0; committed < kSteps; ++committed) {
    while (heads.size() <= committed + kAhead) {
      heads.push_back(whole.heads_wanted(LearnerStep(heads.size()), committed));
    }
    follow(whole, committed);
    states.push_back(whole.state());
  }
  EXPECT_EQ(std::set<uint32_t>(heads.begin(), heads.end()).size(), 6u) << "or this shows nothing";
  for (uint64_t at = 0; at < kSteps; ++at) {
    StoredSuccesses resumed(options, states[at]);
    uint64_t planned = at;
    for (uint64_t committed = at; committed < kSteps; ++committed) {
      for (; planned <= committed + kAhead; ++planned) {
        EXPECT_EQ(resumed.heads_wanted(LearnerStep(planned), committed), heads[planned])
            << "step " << planned << " of a run that was resumed at " << at;
      }
      follow(resumed, committed);
    }
  }
}

// Dynamic sampling takes dead groups away: they tell of need and of success all the same.
TEST(StoredSuccessesTest, GroupsThatOthersReplacedCount) {
  Linked linked;
  const ReuseOptions options = {.buffer = linked.link.get(), .by_need = true};
  StoredSuccesses all(options, {}), replaced(options, {});
  Groups four(1, {{0, 1}, {1, 0}, {0, 0}, {1, 1}}), two(1, {{0, 1}, {1, 0}}),
      dead(1, {{0, 0}, {1, 1}});
  Follow(all, four);
  for (size_t i = 0; i < 2; ++i) replaced.See(LearnerStep(1), dead.received[i], dead.planned[i]);
  Follow(replaced, two);
  EXPECT_EQ(replaced.state(), all.state());
  EXPECT_NE(all.state(), replay::ReuseState());
}

// A sample with two latents; `entry`: it went on from this one's head.
v1::Trajectory SampleOf(double reward, uint64_t entry) {
  v1::Trajectory sample;
  sample.set_reward(reward);
  sample.set_replayed(entry != 0);
  sample.set_entry_id(entry);
  sample.set_stored_reward(1);
  sample.add_sde(true);
  v1::Tensor& latents = *sample.mutable_latents();
  latents.set_dtype(v1::DTYPE_F32);
  for (const int64_t size : {2, 1}) latents.add_shape(size);
  latents.set_data(std::string(8, 'x'));
  return sample;
}

TEST(StoredSuccessesTest, AStepOffersItsSuccessesAndItsFindingsOnceAlsoThoseOfReplacedGroups) {
  Linked linked;
  StoredSuccesses successes({.buffer = linked.link.get(),
                             .offers = OfferRules{.run_seed = 1, .kept_steps = 1, .sigmas = {1, 0}},
                             .failures_max = 2},
                            {});
  Groups replaced(1, {{}}), groups(1, {{}, {}});
  for (int sample = 0; sample < 2; ++sample) {
    *replaced.received[0].group.add_trajectories() = SampleOf(0, 7);
  }
  *groups.received[0].group.add_trajectories() = SampleOf(0, 0);
  *groups.received[0].group.add_trajectories() = SampleOf(1, 0);
  *groups.received[1].group.add_trajectories() = SampleOf(0, 0);
  *groups.received[1].group.add_trajectories() = SampleOf(1, 8);
  successes.See(LearnerStep(1), replaced.received[0], replaced.planned[0]);
  Follow(successes, groups);
  StepCommit commit;
  StepRule::Numbers numbers;
  successes.Offer(groups, commit, numbers);
  ASSERT_EQ(commit.offers.size(), 1u);
  EXPECT_EQ(commit.offers[0].prompt().id(), 1u);
  ASSERT_EQ(commit.rescored.size(), 2u);
  EXPECT_EQ(commit.rescored[0].entry, EntryId(7));
  EXPECT_TRUE(commit.rescored[0].failed);
  EXPECT_EQ(commit.rescored[1].entry, EntryId(8));
  EXPECT_FALSE(commit.rescored[1].failed);
  EXPECT_EQ(commit.failures_max, 2u);
  EXPECT_THAT(numbers, ElementsAre(Pair("buffer/heads_failed", 1), Pair("buffer/offers", 1)));
  StepCommit next;
  successes.Offer(Groups(2, {}), next, numbers);
  EXPECT_TRUE(next.offers.empty() && next.rescored.empty());
}

TEST(StoredSuccessesTest, RatesAreSharesOfTheFullReward) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(11, 7, 0, 2)}});
  const ReuseOptions options = {.buffer = linked.link.get(), .added = 1, .full_reward = 2};
  const StoredSuccesses known(options, {.need = 1, .success_rate = 1.5});
  AddedSuccesses added(options, known);
  Groups groups(1, {{0, 2}});
  Join(added, 1, groups);
  EXPECT_EQ(RateOf(groups.planned[1]), 0.75);
}

TEST(StoredSuccessesTest, WithoutABufferNothingJoins) {
  Linked linked;
  linked.GoAway();
  Groups groups(1, {{0, 0}, {0, 1}});
  JoinBoth({.buffer = linked.link.get(), .added = 2}, 1, groups);
  EXPECT_THAT(groups.Entries(), ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace oxbow::learner
