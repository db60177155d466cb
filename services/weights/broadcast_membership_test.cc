// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "services/weights/broadcast_sender.h"

namespace oxbow::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Workers "w1", "w2", ... with these tickets, all of which have version 1.
BroadcastMembership WithWorkers(uint64_t count, size_t members_max = 64) {
  BroadcastMembership roster(members_max);
  for (uint64_t ticket = 1; ticket <= count; ++ticket) {
    roster.Join(ticket, "w" + std::to_string(ticket), "host", 1);
  }
  return roster;
}

TEST(BroadcastMembershipTest, AWatcherIsAMemberOnceItHasWeights) {
  BroadcastMembership roster(64);
  roster.Join(1, "w1", "10.0.0.7", std::nullopt);
  EXPECT_FALSE(roster.ShouldForm());
  roster.HeardOf("w1", 3);
  ASSERT_TRUE(roster.ShouldForm());
  roster.Form();
  EXPECT_THAT(roster.members(), ElementsAre(1u));
  EXPECT_EQ(roster.RankOf(1), 1);
  EXPECT_EQ(roster.HostOf(1), "10.0.0.7");
  EXPECT_EQ(roster.OldestVersion(), 3u);
  EXPECT_FALSE(roster.ShouldForm());
}

TEST(BroadcastMembershipTest, WhoComesOrGoesMakesANewBroadcastGroup) {
  BroadcastMembership roster = WithWorkers(2);
  const uint64_t first = roster.Form();
  roster.Join(3, "w3", "host", 1);
  ASSERT_TRUE(roster.ShouldForm());
  EXPECT_GT(roster.Form(), first);
  EXPECT_THAT(roster.members(), ElementsAre(1u, 2u, 3u));
  roster.Leave(1);
  ASSERT_TRUE(roster.ShouldForm());
  roster.Form();
  EXPECT_THAT(roster.members(), ElementsAre(2u, 3u));
  EXPECT_EQ(roster.RankOf(1), 0);
  EXPECT_EQ(roster.RankOf(3), 2);
}

TEST(BroadcastMembershipTest, AWorkerThatWatchesAgainHasOnePlace) {
  BroadcastMembership roster = WithWorkers(2);
  roster.Join(3, "w1", "host", 1);
  roster.Leave(1);  // The old call notices last.
  roster.Form();
  EXPECT_THAT(roster.members(), ElementsAre(2u, 3u));
}

TEST(BroadcastMembershipTest, AfterAFailureAMemberIsOutUntilItIsHeardOf) {
  BroadcastMembership roster = WithWorkers(3);
  roster.Form();
  roster.Failed({2}, 2);
  EXPECT_FALSE(roster.ShouldForm()) << "a member that is stopped would be waited for again";
  roster.HeardOf("w1", 2);
  roster.HeardOf("w3", 2);
  roster.Form();
  EXPECT_THAT(roster.members(), ElementsAre(1u, 3u));
}

TEST(BroadcastMembershipTest, WhoHasTheWeightsBeforeTheFailureIsKnownStaysIn) {
  BroadcastMembership roster = WithWorkers(3);
  roster.Form();
  roster.HeardOf("w1", 2);  // By the relay, while the learner still waits.
  roster.Failed({2}, 2);
  roster.Form();
  EXPECT_THAT(roster.members(), ElementsAre(1u));
}

TEST(BroadcastMembershipTest, OfABroadcastGroupThatDidNotStandThoseWhoCameAreAskedAgain) {
  BroadcastMembership roster = WithWorkers(3);
  roster.Form();
  roster.Failed({3});
  roster.Form();
  EXPECT_THAT(roster.members(), ElementsAre(1u, 2u));
}

TEST(BroadcastMembershipTest, WhoFailsInARowSitsOutEverLonger) {
  BroadcastMembership roster = WithWorkers(2);
  for (const int sits_out : {1, 2, 4, 8, 16, 32, 64, 64}) {
    roster.Form();
    ASSERT_THAT(roster.members(), ElementsAre(1u, 2u));
    roster.Failed({2}, 2);
    roster.HeardOf("w1", 1);
    roster.HeardOf("w2", 1);
    for (int publication = 0; publication < sits_out; ++publication) {
      roster.Form();
      EXPECT_THAT(roster.members(), ElementsAre(1u)) << publication << " of " << sits_out;
      roster.Succeeded();  // The others' rounds lift no ban.
      roster.Published();
    }
  }
  roster.Form();
  roster.Succeeded();
  roster.Failed({2}, 2);
  roster.HeardOf("w2", 1);
  roster.Published();
  roster.Form();
  EXPECT_THAT(roster.members(), ElementsAre(2u)) << "a round that went well clears the record";
}

TEST(BroadcastMembershipTest, AFailureThatNamesNobodyIsEverybodys) {
  BroadcastMembership roster = WithWorkers(2);
  roster.Form();
  roster.Failed({}, 2);
  roster.HeardOf("w1", 1);
  roster.HeardOf("w2", 1);
  EXPECT_FALSE(roster.ShouldForm());
  roster.Published();
  EXPECT_TRUE(roster.ShouldForm());
}

TEST(BroadcastMembershipTest, WhatIsNewIsCountedFromTheOldestWeightsOfAMember) {
  BroadcastMembership roster = WithWorkers(3);
  roster.HeardOf("w1", 7);
  roster.HeardOf("w2", 5);
  roster.HeardOf("w3", 6);
  EXPECT_EQ(roster.OldestVersion(), std::nullopt);
  roster.Form();
  EXPECT_EQ(roster.OldestVersion(), 5u);
  roster.Leave(2);
  EXPECT_EQ(roster.OldestVersion(), 6u);
}

// Whatever happens in whatever order: members watch, have weights, are at most so many, and none
// has failed without having been heard of since; and a broadcast group is whole only once.
// Promise: A broadcast can only save time. With `publish.transport: broadcast`, chunks are verified
// as always, and chunks that a broadcast misses are relayed. A member may stop, die, join or never
// be reached. It delays training and the others for at most a few seconds, and nobody waits for it
// again before it is heard of. Losses equal the relay's bit for bit.
TEST(BroadcastMembershipTest, LawsHoldForAnyHistory) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto pick = [&](uint64_t below) { return random() % below; };
  constexpr size_t kMembersMax = 5;
  BroadcastMembership roster(kMembersMax);
  std::set<uint64_t> watching;
  std::set<uint64_t> fit;  // Heard of since they came or failed.
  uint64_t next = 1;
  uint64_t broadcast_group = 0;
  for (int event = 0; event < 5000; ++event) {
    const uint64_t ticket =
        watching.empty() ? 0 : *std::next(watching.begin(), pick(watching.size()));
    const std::string worker = "w" + std::to_string(ticket);
    switch (pick(6)) {
      case 0:
        if (watching.size() >= 12) break;
        roster.Join(next, "w" + std::to_string(next), "host", std::nullopt);
        watching.insert(next++);
        break;
      case 1:
        if (pick(3) > 0) break;
        roster.Leave(ticket);
        watching.erase(ticket);
        fit.erase(ticket);
        break;
      case 2:
        roster.HeardOf(worker, event);
        if (ticket > 0) fit.insert(ticket);
        break;
      case 3:
        for (const uint64_t member : roster.members()) fit.erase(member);
        roster.Failed(pick(2) == 0 ? std::vector<int>{} : std::vector<int>{1}, /*version=*/5000);
        EXPECT_THAT(roster.members(), IsEmpty());
        break;
      case 4:
        roster.Published();
        if (pick(2) == 0) roster.Succeeded();
        break;
      default:
        if (!roster.ShouldForm()) break;
        EXPECT_GT(roster.Form(), broadcast_group);
        broadcast_group = roster.broadcast_group();
        EXPECT_FALSE(roster.ShouldForm());
        ASSERT_LE(roster.members().size(), kMembersMax);
        for (const uint64_t member : roster.members()) ASSERT_TRUE(fit.contains(member));
    }
  }
}

}  // namespace
}  // namespace oxbow::weights
