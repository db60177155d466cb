// SPDX-License-Identifier: Apache-2.0
// Buffers that are another run's, that lack a checkpoint, that are one shard short, or away for
// long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "services/learner/replay/replay_link.h"
#include "tests/testing/linked_buffer.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

StepCommit OneOffer(uint64_t step) {
  return {.step = LearnerStep(step), .offers = {Entry(100 + step, step, step, 1)}};
}

std::vector<uint64_t> Ids(const Shard& shard) {
  std::vector<uint64_t> ids;
  for (const buffer::Entry& entry : shard.Content().first) ids.push_back(entry.id.value);
  return ids;
}

// The learner's checkpoint of step 4 was taken while the buffer was away. Then the learner went on,
// the buffer came back and took the backlog, and the learner was started again.
// Promise: Resume continues from the checkpoint.
TEST(ReplayLinkFaultsTest, ACheckpointTakenWhileTheBufferWasAwayDoesNotEmptyIt) {
  Linked linked;
  for (uint64_t step = 0; step < 3; ++step) linked.link->Commit(OneOffer(step));
  ASSERT_TRUE(linked.link->Checkpoint("three", 2).ok());
  linked.GoAway();
  linked.link->Commit(OneOffer(3));
  EXPECT_FALSE(linked.link->Checkpoint("four", 2).ok());
  linked.ComeBack();
  for (uint64_t step = 4; step < 6; ++step) linked.link->Commit(OneOffer(step));
  ASSERT_THAT(Ids(*linked.shards[0]), SizeIs(6));

  linked.link->Restore("", LearnerStep(4));
  EXPECT_TRUE(linked.link->ended().ok());
  EXPECT_THAT(Ids(*linked.shards[0]), ElementsAre(100, 101, 102, 103));
  linked.link->Commit(OneOffer(4));
  EXPECT_THAT(Ids(*linked.shards[0]), ElementsAre(100, 101, 102, 103, 104));
  EXPECT_THAT(linked.link->Draw(LearnerStep(5), 9), SizeIs(5));
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 0\n"));
}

TEST(ReplayLinkFaultsTest, AnotherRunEndsAndLeavesTheBufferAsItIs) {
  Linked linked;
  const auto mine = linked.Another("digits-1", kEpoch);
  mine->Restore("");
  for (uint64_t step = 0; step < 3; ++step) mine->Commit(OneOffer(step));
  const auto other = linked.Another("faces-2", Epoch(1));
  other->Restore("");
  const absl::Status ended = other->ended();
  EXPECT_TRUE(absl::IsInvalidArgument(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()),
              ::testing::AllOf(HasSubstr("belongs to run digits-1, not to run faces-2"),
                               HasSubstr("--take-buffer digits-1")));
  const std::vector<std::string> journal = linked.shards[0]->door.journal();
  other->Commit(OneOffer(9));
  EXPECT_THAT(other->Draw(LearnerStep(9), 4), IsEmpty());
  EXPECT_EQ(linked.shards[0]->door.journal(), journal) << "it is done with this buffer";
  EXPECT_THAT(Ids(*linked.shards[0]), ElementsAre(100, 101, 102));
  mine->Commit(OneOffer(3));
  EXPECT_TRUE(mine->ended().ok());
  EXPECT_THAT(Ids(*linked.shards[0]), SizeIs(4));
}

// Promise: A buffer belongs to one run.
TEST(ReplayLinkFaultsTest, AFencedStartEndsAndHasNoEffect) {
  Linked linked;
  const auto older = linked.Another("digits-1", Epoch(1));
  older->Restore("");
  older->Commit(OneOffer(0));
  const auto newer = linked.Another("digits-1", Epoch(2));
  newer->Restore("", LearnerStep(1));
  EXPECT_TRUE(newer->ended().ok());
  older->Commit(OneOffer(1));
  EXPECT_TRUE(absl::IsInvalidArgument(older->ended())) << older->ended();
  EXPECT_THAT(std::string(older->ended().message()), HasSubstr("fenced by start 2"));
  EXPECT_THAT(Ids(*linked.shards[0]), ElementsAre(100));
}

// More ids than can be remembered, step after step: the oldest are forgotten, and replay goes on.
// Promise: Memory is bounded.
TEST(ReplayLinkFaultsTest, TheBoundOfRememberedIdsDoesNotEndReplay) {
  Linked linked(1, 64, kKept, buffer::kOfferCallBytes, buffer::kOfferBytesMax, uint64_t{1} << 30,
                /*remembered_max=*/5);
  for (uint64_t step = 0; step < 20; ++step) {
    linked.link->Commit({.step = LearnerStep(step),
                         .offers = {Entry(200 + 2 * step, 2 * step, step, 1),
                                    Entry(201 + 2 * step, 2 * step + 1, step, 1)}});
    EXPECT_TRUE(linked.link->attached()) << step;
  }
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 0\n"));
  EXPECT_THAT(Ids(*linked.shards[0]), SizeIs(40));
  // An entry whose id was forgotten does not enter twice.
  linked.link->Commit(
      {.step = LearnerStep(20), .offers = {Entry(200, 0, 0, 9)}, .evict = {EntryId(200)}});
  linked.link->Commit({.step = LearnerStep(21), .offers = {Entry(200, 0, 0, 9)}});
  EXPECT_THAT(Ids(*linked.shards[0]), SizeIs(39));
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_offers_total{outcome=\"rejected_invalid\"} 1\n"));
}

TEST(ReplayLinkFaultsTest, MoreOffersInOneStepThanIdsIsARefusalAndNotAnAbsence) {
  Linked linked(1, 64, kKept, buffer::kOfferCallBytes, buffer::kOfferBytesMax, uint64_t{1} << 30,
                /*remembered_max=*/2);
  linked.link->Commit({.step = LearnerStep(0),
                       .offers = {Entry(1, 1, 0, 1), Entry(2, 2, 0, 1), Entry(3, 3, 0, 1)}});
  EXPECT_TRUE(linked.link->attached());
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 1\n"));
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(4, 4, 1, 1)}});
  EXPECT_THAT(Ids(*linked.shards[0]), ElementsAre(4));
}

// Promise: Memory is bounded.
TEST(ReplayLinkFaultsTest, TheBacklogIsBoundedByBytesAndCountsWhatItDrops) {
  const uint64_t bytes = OneOffer(1).offers[0].ByteSizeLong();
  Linked linked(1, /*commits_max=*/64, kKept, buffer::kOfferCallBytes, buffer::kOfferBytesMax,
                /*backlog_bytes_max=*/3 * bytes + bytes / 2);
  linked.GoAway();
  for (uint64_t step = 0; step < 10; ++step) linked.link->Commit(OneOffer(step));
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 7\n"));
  linked.ComeBack();
  linked.link->Commit(OneOffer(10));
  EXPECT_THAT(Ids(*linked.shards[0]), ElementsAre(107, 108, 109, 110));
  EXPECT_EQ(linked.shards[0]->store->Info().step, LearnerStep(11));
}

TEST(ReplayLinkFaultsTest, ACommitLargerThanTheBacklogStillMovesTheAge) {
  Linked linked(1, 64, kKept, buffer::kOfferCallBytes, buffer::kOfferBytesMax,
                /*backlog_bytes_max=*/10);
  linked.GoAway();
  linked.link->Commit(OneOffer(0));
  linked.ComeBack();
  EXPECT_THAT(linked.link->Draw(LearnerStep(1), 1), IsEmpty());
  EXPECT_EQ(linked.shards[0]->store->Info().step, LearnerStep(1));
}

// Promise: Any one process may die, again and again.
TEST(ReplayLinkFaultsTest, ADeadShardTakesNothingFromTheOthers) {
  Linked always(3), short_of_one(3);
  const auto commit = [](uint64_t step) {
    StepCommit made{.step = LearnerStep(step)};
    for (uint64_t i = 0; i < 3; ++i) {
      made.offers.push_back(Entry(1 + 3 * step + i, 3 * step + i, step, 1));
    }
    return made;
  };
  for (uint64_t step = 0; step < 6; ++step) {
    if (step == 2) short_of_one.GoAway();
    if (step == 4) {
      EXPECT_THAT(Ids(*short_of_one.shards[0]), SizeIs(2));
      EXPECT_THAT(Ids(*short_of_one.shards[1]), SizeIs(4));
      EXPECT_THAT(Ids(*short_of_one.shards[2]), SizeIs(4));
      EXPECT_FALSE(short_of_one.link->attached());
      EXPECT_THAT(short_of_one.Metrics(), HasSubstr("oxbow_learner_buffer_attached 0\n"));
      EXPECT_EQ(short_of_one.link->Info()->entries(), 8u) << "of those that answer";
      EXPECT_THAT(short_of_one.link->Draw(LearnerStep(4), 8), SizeIs(8));
      short_of_one.ComeBack();
    }
    always.link->Commit(commit(step));
    short_of_one.link->Commit(commit(step));
  }
  for (size_t shard = 0; shard < 3; ++shard) {
    EXPECT_EQ(short_of_one.shards[shard]->Content(), always.shards[shard]->Content()) << shard;
  }
  EXPECT_TRUE(short_of_one.link->attached());
}

// The door stays shut for longer than one call tries.
// Promise: No plan waits for stored latents.
// Promise: Any one process may die, again and again.
TEST(ReplayLinkFaultsTest, ALinkThatWaitsDrawsWhatItWouldHaveDrawnWithoutTheAbsence) {
  Linked always, waiting;
  waiting.Awaiting(absl::Seconds(60));
  for (Linked* linked : {&always, &waiting}) {
    for (uint64_t step = 0; step < 3; ++step) linked->link->Commit(OneOffer(step));
  }
  waiting.GoAway();
  waiting.shards[0]->door.OpenAfter(5);
  waiting.link->Commit(OneOffer(3));
  always.link->Commit(OneOffer(3));
  EXPECT_TRUE(waiting.link->attached());

  waiting.shards[0]->door.ShutAfterOne();  // Draws, and is away when the heads are read.
  waiting.shards[0]->door.OpenAfter(5);
  const std::vector<ReplayedHead> drawn = waiting.link->Draw(LearnerStep(4), 2);
  const std::vector<ReplayedHead> expected = always.link->Draw(LearnerStep(4), 2);
  ASSERT_THAT(drawn, SizeIs(2));
  ASSERT_THAT(expected, SizeIs(2));
  std::vector<PlannedGroup> planned(2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(drawn[i].entry, expected[i].entry);
    planned[i].kind = MixedGroup{drawn[i]};
  }
  EXPECT_THAT(waiting.link->TakeLatents(LearnerStep(4), planned), IsEmpty());
  EXPECT_EQ(waiting.shards[0]->Content(), always.shards[0]->Content());
}

// Its calls have 20 s each, and as many again for each step, if nothing bounds them.
// Promise: A slow buffer costs a bounded share of the time. The calls of a step to its replay
// buffer have three seconds in all, or a tenth of the time since the last step. A shard that uses
// them up is counted and left alone for a rest that doubles; fresh groups are trained meanwhile.
// Offers that waited are handed in later. A deterministic run waits as it says. The buffer's
// metrics and Info answer while a write hangs.
TEST(ReplayLinkFaultsTest, AHungBufferCostsAStepItsBudgetAndTheNextOnesNothing) {
  Linked linked;
  linked.Within(absl::Milliseconds(200));
  Door& door = linked.shards[0]->door;
  for (uint64_t step = 0; step < 3; ++step) linked.link->Commit(OneOffer(step));
  door.Hang(true);
  const absl::Duration began = Clock::Steady().Now();
  EXPECT_THAT(linked.link->Draw(LearnerStep(3), 4), IsEmpty());
  EXPECT_EQ(linked.link->Info(), std::nullopt);
  const int calls = door.calls();
  for (uint64_t step = 3; step < 6; ++step) {
    linked.link->Commit(OneOffer(step));
    EXPECT_THAT(linked.link->Draw(LearnerStep(step + 1), 4), IsEmpty());
    EXPECT_FALSE(linked.link->Checkpoint("six", 1).ok());
  }
  EXPECT_EQ(door.calls(), calls) << "it is left alone";
  EXPECT_LT(Clock::Steady().Now() - began, absl::Seconds(10));
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_overruns_total 1\n"));
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_attached 0\n"));
  door.Hang(false);
  ASSERT_TRUE(linked.link->AwaitAttachedForTest(absl::Seconds(20)));
  linked.link->Commit(OneOffer(6));  // The step that used its budget up.
  linked.link->Commit(OneOffer(7));
  EXPECT_THAT(Ids(*linked.shards[0]), SizeIs(8));
  EXPECT_THAT(linked.link->Draw(LearnerStep(8), 4), SizeIs(4));
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 0\n"));
}

// Promise: A slow buffer costs a bounded share of the time.
TEST(ReplayLinkFaultsTest, HeadsOfABufferThatHangsAreGivenUpWithinTheBudget) {
  Linked linked;
  linked.Within(absl::Milliseconds(200));
  for (uint64_t step = 0; step < 3; ++step) linked.link->Commit(OneOffer(step));
  linked.shards[0]->door.HangAfterOne();
  const std::vector<ReplayedHead> drawn = linked.link->Draw(LearnerStep(3), 2);
  ASSERT_THAT(drawn, SizeIs(2));
  std::vector<PlannedGroup> planned(2);
  for (size_t i = 0; i < 2; ++i) planned[i].kind = MixedGroup{drawn[i]};
  const absl::Duration began = Clock::Steady().Now();
  EXPECT_THAT(linked.link->TakeLatents(LearnerStep(3), planned), ElementsAre(0, 1));
  EXPECT_LT(Clock::Steady().Now() - began, absl::Seconds(10));
  linked.shards[0]->door.Hang(false);
}

// Promise: Any one process may die, again and again.
TEST(ReplayLinkFaultsTest, ALinkWaitsForAShardOnceAndThenGoesOnWithoutIt) {
  Linked linked;
  linked.Awaiting(absl::Milliseconds(300));
  linked.link->Commit(OneOffer(0));
  linked.GoAway();
  const absl::Duration began = Clock::Steady().Now();
  EXPECT_THAT(linked.link->Draw(LearnerStep(1), 4), IsEmpty());
  EXPECT_GE(Clock::Steady().Now() - began, absl::Milliseconds(300));
  EXPECT_FALSE(linked.link->attached());
  linked.link->Commit(OneOffer(1));
  linked.ComeBack();
  EXPECT_THAT(linked.link->Draw(LearnerStep(2), 4), SizeIs(2)) << "and takes what waited";
}

}  // namespace
}  // namespace oxbow::learner
