// SPDX-License-Identifier: Apache-2.0
// The board hands out each lease that may be sampled once, and counts the held leases.
#include "services/rollout/held_leases.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace oxbow::rollout {
namespace {

constexpr absl::Duration kLinger = absl::Milliseconds(1);
constexpr absl::Duration kTimeout = absl::Milliseconds(5);

v1::Lease Lease(uint64_t id, uint64_t version_min = 0) {
  v1::Lease lease;
  lease.set_lease_id(id);
  lease.set_policy_version_min(version_min);
  lease.set_seconds(9);
  return lease;
}

void Hold(HeldLeases& board, const v1::Lease& lease) {
  ASSERT_TRUE(board.Arrived(lease));
  board.Ready({lease, std::nullopt});
}

TEST(HeldLeasesTest, TakesAllReadyLeasesThatTheVersionAdmitsAndEachOnce) {
  HeldLeases board(4);
  Hold(board, Lease(1, 3));
  Hold(board, Lease(2, 4));
  Hold(board, Lease(3, 5));
  ASSERT_TRUE(board.Arrived(Lease(4)));  // Its head is still being read.
  EXPECT_FALSE(board.Arrived(Lease(4)));
  EXPECT_TRUE(board.TakeBatch(std::nullopt, kLinger, kTimeout).empty());
  EXPECT_EQ(board.TakeBatch(PolicyVersion(4), kLinger, kTimeout).size(), 2u);
  EXPECT_TRUE(board.TakeBatch(PolicyVersion(4), kLinger, kTimeout).empty());
  const auto later = board.TakeBatch(PolicyVersion(5), kLinger, kTimeout);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].lease.lease_id(), 3u);
  EXPECT_EQ(board.held().size(), 4u);
}

TEST(HeldLeasesTest, WhatTheSamplerIsDoneWithIsHeldUntilItIsDelivered) {
  HeldLeases board(3);
  for (const uint64_t id : {1, 2, 3}) Hold(board, Lease(id));
  ASSERT_EQ(board.TakeBatch(PolicyVersion(0), kLinger, kTimeout).size(), 3u);
  EXPECT_TRUE(board.sampled().empty());
  board.Sampled(1);
  board.Sampled(2);
  board.Done(1);
  EXPECT_EQ(board.sampled(), std::vector<uint64_t>{2});
  EXPECT_EQ(board.held(), (std::vector<uint64_t>{2, 3}));
}

TEST(HeldLeasesTest, FreePlacesFollowWhatIsHeldAndDrainTakesThemAway) {
  HeldLeases board(2);
  EXPECT_EQ(board.free_places(), 2u);
  Hold(board, Lease(1));
  Hold(board, Lease(2));
  Hold(board, Lease(3));  // Granted on an older credit.
  EXPECT_EQ(board.free_places(), 0u);
  for (uint64_t id = 1; id <= 3; ++id) board.Done(id);
  EXPECT_EQ(board.free_places(), 2u);
  EXPECT_TRUE(board.AwaitEmpty(kTimeout));
  board.Drain();
  EXPECT_EQ(board.free_places(), 0u);
}

TEST(HeldLeasesTest, CancelDropsWhatWasNotTakenYet) {
  HeldLeases board(2);
  Hold(board, Lease(1));
  board.Cancel(1);
  EXPECT_TRUE(board.TakeBatch(PolicyVersion(0), kLinger, kTimeout).empty());
  Hold(board, Lease(2));
  ASSERT_EQ(board.TakeBatch(PolicyVersion(0), kLinger, kTimeout).size(), 1u);
  EXPECT_TRUE(board.Wanted(2));
  board.Cancel(2);
  EXPECT_FALSE(board.Wanted(2)) << "its group need not be delivered";
  EXPECT_EQ(board.held().size(), 1u);
  EXPECT_EQ(board.lease_time_min(), absl::Seconds(9));
}

}  // namespace
}  // namespace oxbow::rollout
