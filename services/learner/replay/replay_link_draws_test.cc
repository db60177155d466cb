// SPDX-License-Identifier: Apache-2.0
// Draws of the link: heads of best, prompts and groups of the queues, over one shard or several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/flow/window.h"
#include "services/learner/replay/replay_link.h"
#include "services/learner/replay/replay_offer.h"
#include "tests/testing/linked_buffer.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string& LatentsOf(const v1::ReplayEntry& entry) {
  return entry.trajectory().latents().data();
}

// Three latents from x_{window.front()} on, under a window of kSteps flags.
v1::ReplayEntry WindowEntry(uint64_t id, const std::vector<int>& window) {
  v1::ReplayEntry entry = Entry(id, id, 0, 1);
  v1::Trajectory& trajectory = *entry.mutable_trajectory();
  trajectory.set_first_latent(static_cast<uint32_t>(window.front()));
  trajectory.clear_sde();
  for (const bool sde : flow::StepFlags(window, kSteps)) trajectory.add_sde(sde);
  return entry;
}

// The heads as the groups of their step get them.
std::vector<ReplayedHead> WithLatents(ReplayLink& link, LearnerStep step,
                                      const std::vector<ReplayedHead>& heads) {
  std::vector<PlannedGroup> planned(heads.size());
  for (size_t i = 0; i < heads.size(); ++i) planned[i].kind = MixedGroup{heads[i]};
  EXPECT_THAT(link.TakeLatents(step, planned), IsEmpty());
  std::vector<ReplayedHead> filled;
  for (PlannedGroup& group : planned) filled.push_back(std::move(*group.head()));
  return filled;
}

TEST(ReplayLinkDrawsTest, AHeadIsTheEntryUpToTheLastKeptTransition) {
  Linked linked;
  const v1::ReplayEntry entry = Entry(1, 9, 0, 0.5);
  v1::ReplayEntry other_schedule = Entry(2, 2, 0, 1);
  other_schedule.mutable_trajectory()->set_schedule_id(kSchedule + 1);
  v1::ReplayEntry other_size = buffer::TestMessage(3, 3, 0, 1, 2 * kLatentBytes);
  other_size.mutable_trajectory()->set_schedule_id(kSchedule);
  other_size.mutable_trajectory()->add_sde(true);
  linked.link->Commit({.step = LearnerStep(0), .offers = {entry, other_schedule, other_size}});
  linked.link->Commit({.step = LearnerStep(1), .used = {EntryId(1)}});

  const std::vector<ReplayedHead> drawn = linked.link->Draw(LearnerStep(5), 3);
  ASSERT_THAT(drawn, SizeIs(1));
  EXPECT_EQ(drawn[0].trajectory.latents().data(), "") << "the plan of a step needs none";
  const ReplayedHead head = WithLatents(*linked.link, LearnerStep(5), drawn).at(0);
  EXPECT_EQ(head.prompt.id(), 9u);
  EXPECT_EQ(head.entry, EntryId(1));
  EXPECT_EQ(head.kept_steps, kKept);
  EXPECT_EQ(head.stored_reward, 0.5);
  EXPECT_EQ(head.age, 5u);
  EXPECT_EQ(head.uses, 1u);
  EXPECT_EQ(head.trajectory.latents().shape(0), kKept + 1);
  EXPECT_EQ(head.trajectory.latents().data(),
            LatentsOf(entry).substr(0, (kKept + 1) * kLatentBytes));
}

// A run whose latents have frames finds pictures of as many bytes, or the other way round.
// Promise: A model of videos trains.
TEST(ReplayLinkDrawsTest, LatentsOfAnotherRankAreRefusedThoughTheirBytesFit) {
  Linked linked;
  v1::ReplayEntry other = Entry(1, 9, 0, 1);
  v1::Tensor& latents = *other.mutable_trajectory()->mutable_latents();
  const int64_t numbers = latents.shape(1);
  latents.set_shape(1, numbers / 2);
  latents.add_shape(2);
  linked.link->Commit({.step = LearnerStep(0), .offers = {other, Entry(2, 8, 0, 1)}});
  ::testing::internal::CaptureStderr();
  const auto drawn = linked.link->Draw(LearnerStep(1), 2);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_THAT(drawn, SizeIs(1));
  EXPECT_EQ(drawn[0].entry, EntryId(2));
  EXPECT_THAT(linked.Metrics(), HasSubstr("heads_refused_total{reason=\"size\"} 1\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
  EXPECT_THAT(log, HasSubstr("[5, 2]"));
  EXPECT_THAT(log, HasSubstr("[10]"));
}

// Promise: No plan waits for stored latents.
TEST(ReplayLinkDrawsTest, AHeadThatCannotBeReadAnyMoreLeavesItsGroupAlone) {
  Linked linked(/*shard_count=*/2);
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 2, 0, 1), Entry(2, 3, 0, 1)}});
  linked.shards[1]->door.ShutAfterOne();  // Draws, and is away when its head is read.
  const std::vector<ReplayedHead> drawn = linked.link->Draw(LearnerStep(1), 2);
  ASSERT_THAT(drawn, SizeIs(2));
  std::vector<PlannedGroup> planned(4);
  planned[1].kind = MixedGroup{drawn[0]};
  planned[2].kind = WholeGroup{drawn[1]};
  const size_t of_shard_one = drawn[0].shard == 1 ? 1 : 2;
  EXPECT_THAT(linked.link->TakeLatents(LearnerStep(1), planned),
              ::testing::ElementsAre(of_shard_one));
  EXPECT_EQ(planned[of_shard_one].head(), nullptr);
  EXPECT_EQ(planned[3 - of_shard_one].head()->trajectory.latents().data().size(),
            (kKept + 1) * kLatentBytes);
}

TEST(ReplayLinkDrawsTest, AGroupMayGoOnWithoutItsHeadAndAStepWithoutAnyDraw) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 2, 0, 1)}});
  ASSERT_THAT(linked.link->Draw(LearnerStep(1), 1), SizeIs(1));
  std::vector<PlannedGroup> planned(2);  // Workers could not read the head.
  EXPECT_THAT(linked.link->TakeLatents(LearnerStep(1), planned), IsEmpty());
  EXPECT_THAT(linked.link->TakeLatents(LearnerStep(2), planned), IsEmpty());
}

// The entry counts its newest picture, a sample with the first one keeps that one's reward.
// Promise: A success that new tails destroy leaves.
TEST(ReplayLinkDrawsTest, ARegenerationIsWrittenBack) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 9, 0, 1), Entry(2, 8, 0, 1)}});
  const auto tell = [&](uint64_t step, bool failed) {
    linked.link->Commit({.step = LearnerStep(step),
                         .rescored = {{.entry = EntryId(1), .reward = .25, .failed = failed}},
                         .failures_max = 2});
  };
  tell(1, true);
  EXPECT_EQ(linked.link->Info()->raw_reward_mean(), (1 + .25) / 2);
  for (const ReplayedHead& head : linked.link->Draw(LearnerStep(2), 2)) {
    EXPECT_EQ(head.stored_reward, 1);
  }
  tell(2, true);
  const std::vector<ReplayedHead> left = linked.link->Draw(LearnerStep(3), 2);
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(left[0].entry, EntryId(2));
}

// Windows move from step to step: a head brings its own stochastic steps, those before i_off count.
TEST(ReplayLinkDrawsTest, AHeadOfAnotherWindowKeepsItsOwnStochasticSteps) {
  Linked linked(/*shard_count=*/1, /*commits_max=*/64, /*kept_steps=*/2);
  const v1::ReplayEntry early = WindowEntry(1, {0, 1});
  const v1::ReplayEntry across = WindowEntry(2, {1, 2});
  linked.link->Commit({.step = LearnerStep(0), .offers = {early, across, WindowEntry(3, {2, 3})}});
  std::map<uint64_t, ReplayedHead> heads;
  for (const ReplayedHead& head :
       WithLatents(*linked.link, LearnerStep(1),
                   linked.link->Draw(LearnerStep(1), 3, flow::StepFlags({1, 2}, kSteps)))) {
    EXPECT_EQ(head.kept_steps, 2u);
    heads[head.entry.value] = head;
  }
  ASSERT_THAT(heads, SizeIs(2)) << "entry 3 has no density before i_off";
  EXPECT_TRUE(heads[1].other_window);
  EXPECT_FALSE(heads[2].other_window);
  EXPECT_EQ(heads[1].trajectory.first_latent(), 0u);
  EXPECT_EQ(heads[1].trajectory.latents().data(), LatentsOf(early));
  EXPECT_EQ(heads[2].trajectory.first_latent(), 1u);
  EXPECT_EQ(heads[2].trajectory.latents().data(), LatentsOf(across).substr(0, 2 * kLatentBytes));
  EXPECT_EQ(linked.link->heads_refused(), 1u);
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_heads_refused_total{reason=\"no_density\"} 1\n"));
}

TEST(ReplayLinkDrawsTest, PromptsLiveOnTheirShardAndDrawsTakeEqualShares) {
  Linked linked(/*shard_count=*/2);
  ReplayLink::StepCommit commit{.step = LearnerStep(0)};
  for (uint64_t id = 1; id <= 12; ++id) commit.offers.push_back(Entry(id, id, 0, 1));
  linked.link->Commit(commit);
  EXPECT_EQ(linked.link->Info()->entries(), 12u);
  for (uint64_t step = 1; step <= 4; ++step) {
    std::vector<int> of_shard(2);
    for (const ReplayedHead& head : linked.link->Draw(LearnerStep(step), 3)) {
      EXPECT_EQ(head.prompt.id() % 2, head.shard);
      ++of_shard[head.shard];
    }
    EXPECT_EQ(of_shard[0] + of_shard[1], 3);
    EXPECT_EQ(of_shard[0], step % 2 == 0 ? 2 : 1) << "the larger share goes round";
    linked.link->Commit({.step = LearnerStep(step)});
  }
}

TEST(ReplayLinkDrawsTest, PromptsThatFailedLongestAgoComeFirstFromAllShards) {
  Linked linked(/*shard_count=*/2);
  for (uint64_t step = 0; step < 3; ++step) {
    ReplayLink::StepCommit commit{.step = LearnerStep(step)};
    for (const uint64_t prompt : {10 + step, 21 + step}) {
      commit.offers.push_back(HardPromptEntry(PlannedOf(prompt, prompt, step), 0, {}));
    }
    linked.link->Commit(commit);
  }
  const std::vector<v1::ReplayEntry> waiting = linked.link->DrawHardPrompts(LearnerStep(3), 3);
  ASSERT_THAT(waiting, SizeIs(3));
  EXPECT_EQ(waiting[0].prompt().id() % 11, 10u) << "10 and 21 failed in step 0";
  EXPECT_EQ(waiting[1].prompt().id() % 11, 10u);
  linked.link->Commit({.step = LearnerStep(3),
                       .evict = {EntryId(waiting[0].entry_id()), EntryId(waiting[1].entry_id())}});
  EXPECT_THAT(linked.link->DrawHardPrompts(LearnerStep(4), 9), SizeIs(4));
  linked.GoAway();  // Shard 0 alone: the prompts of the other one stay.
  std::vector<uint64_t> left;
  for (const v1::ReplayEntry& one : linked.link->DrawHardPrompts(LearnerStep(4), 9)) {
    left.push_back(one.prompt().id());
  }
  EXPECT_THAT(left, ::testing::UnorderedElementsAre(11, 23));
}

TEST(ReplayLinkDrawsTest, AGroupOfLatentsOfAnotherShapeDoesNotComeBack) {
  Linked linked;
  v1::Group group;
  *group.add_trajectories() = Entry(1, 9, 0, 0.5).trajectory();
  v1::Tensor& latents = *group.mutable_trajectories(0)->mutable_latents();
  latents.set_shape(1, latents.shape(1) / 2);
  latents.add_shape(2);
  ReplayLink::StepCommit commit{.step = LearnerStep(0)};
  commit.groups.push_back(*GroupEntry(group, PlannedOf(1, 9, 0), 0.5, {}));
  linked.link->Commit(commit);
  const std::vector<v1::ReplayEntry> recent = linked.link->RecentGroups();
  ASSERT_THAT(recent, SizeIs(1));
  EXPECT_FALSE(linked.link->ReadGroup(recent[0]).has_value());
}

TEST(ReplayLinkDrawsTest, GroupsComeBackWholeForSomeSteps) {
  Linked linked(/*shard_count=*/2);
  v1::Group group;
  for (uint32_t sample = 0; sample < 2; ++sample) {
    const v1::ReplayEntry entry = Entry(1 + sample, 9, 0, 0.5);
    *group.add_trajectories() = entry.trajectory();
  }
  ReplayLink::StepCommit commit{.step = LearnerStep(0)};
  commit.groups.push_back(*GroupEntry(group, PlannedOf(1, 9, 0), 0.5, {}));
  linked.link->Commit(commit);
  const std::vector<v1::ReplayEntry> recent = linked.link->RecentGroups();
  ASSERT_THAT(recent, SizeIs(1));
  EXPECT_EQ(recent[0].raw_reward(), 0.5);
  const auto back = linked.link->ReadGroup(recent[0]);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->SerializeAsString(), group.SerializeAsString());
  linked.link->Commit({.step = LearnerStep(1), .used = {EntryId(recent[0].entry_id())}});
  EXPECT_EQ(linked.link->RecentGroups()[0].uses(), 1u);
  linked.link->Commit({.step = LearnerStep(2)});
  EXPECT_THAT(linked.link->RecentGroups(), SizeIs(1)) << "three steps: those before step 3";
  linked.link->Commit({.step = LearnerStep(3)});
  EXPECT_THAT(linked.link->RecentGroups(), IsEmpty());
  EXPECT_FALSE(linked.link->ReadGroup(recent[0]).has_value());
  EXPECT_TRUE(linked.link->attached()) << "a group that is gone is no absence";
}

}  // namespace
}  // namespace oxbow::learner
