// SPDX-License-Identifier: Apache-2.0
#include "services/weights/relay_roster.h"

#include <gtest/gtest.h>

namespace oxbow::weights {
namespace {

constexpr char kHost[] = "127.0.0.1";

// Workers "w0", "w1", ... at "host:0", "host:1", ..., all seen from one host.
std::vector<RelayRoster::Ticket> JoinAll(RelayRoster& roster, int count) {
  std::vector<RelayRoster::Ticket> tickets;
  for (int i = 0; i < count; ++i) {
    tickets.push_back(roster.Join("w" + std::to_string(i), "host:" + std::to_string(i), kHost));
  }
  return tickets;
}

v1::ReportPeerRequest Report(const std::string& by, const std::string& peer, v1::PeerFault fault) {
  v1::ReportPeerRequest report;
  report.set_worker_id(by);
  report.mutable_peer()->set_worker_id(peer);
  report.set_fault(fault);
  return report;
}

std::string ParentOf(RelayRoster& roster, RelayRoster::Ticket ticket) {
  const auto peers = roster.PeersOf(ticket);
  return peers.empty() ? "learner" : peers.front().worker_id();
}

TEST(RelayRosterTest, WatchersAreHandedTheirPeersWithTheLearnerAsTheLastResort) {
  RelayRoster roster(2);
  const auto tickets = JoinAll(roster, 3);
  EXPECT_TRUE(roster.PeersOf(tickets[0]).empty());
  const auto peers = roster.PeersOf(tickets[2]);
  ASSERT_EQ(peers.size(), 2u);
  EXPECT_EQ(peers[0].worker_id(), "w0");
  EXPECT_EQ(peers[0].endpoint(), "host:0");
  EXPECT_EQ(peers[1].worker_id(), "w1");
}

// Promise: No slow worker delays new weights.
TEST(RelayRosterTest, OneWatcherOfAMachineFetchesForTheOthersUntilItIsNoSource) {
  RelayRoster roster(2);
  std::vector<RelayRoster::Ticket> tickets;
  for (int i = 0; i < 8; ++i) {
    const std::string host = i % 2 == 0 ? "10.0.0.7" : "10.0.0.8";
    tickets.push_back(roster.Join("w" + std::to_string(i), host + ":" + std::to_string(i), host));
  }
  const auto parents = [&] {
    std::vector<std::string> names;
    for (const RelayRoster::Ticket ticket : tickets) names.push_back(ParentOf(roster, ticket));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(parents(), (Names{"learner", "learner", "w0", "w1", "w0", "w1", "w2", "w3"}));
  EXPECT_TRUE(roster.Accuse(Report("w2", "w0", v1::PEER_FAULT_STALLED), "10.0.0.7"));
  EXPECT_EQ(parents(), (Names{"w4", "learner", "learner", "w1", "w2", "w1", "w2", "w3"}))
      << "w2 fetches for its machine now; the silent one is no source";
}

// Promise: Weights are verified.
TEST(RelayRosterTest, CorruptPeerIsNeverHandedOutAgain) {
  RelayRoster roster(2);
  const auto tickets = JoinAll(roster, 3);
  EXPECT_TRUE(roster.Accuse(Report("w2", "w0", v1::PEER_FAULT_CORRUPT), kHost));
  EXPECT_FALSE(roster.Accuse(Report("w2", "w0", v1::PEER_FAULT_CORRUPT), kHost));  // Repeated.
  roster.HeardOf("w0");
  roster.Join("w0", "host:9", kHost);
  for (int round = 0; round < 20; ++round) {
    const auto ticket = roster.Join("late" + std::to_string(round), "", kHost);
    for (const auto& peer : roster.PeersOf(ticket)) EXPECT_NE(peer.worker_id(), "w0");
  }
}

// Promise: A worker's leases are its own.
TEST(RelayRosterTest, ACorruptWorkerThatStartsAgainUnderARelatedNameIsNoSource) {
  RelayRoster roster(1);
  roster.Join("w0", "host:0", kHost);
  const auto child = roster.Join("w2", "", kHost);
  EXPECT_EQ(ParentOf(roster, child), "w0");
  EXPECT_TRUE(roster.Accuse(Report("w2", "w0", v1::PEER_FAULT_CORRUPT), kHost));
  for (const std::string again : {"w0.1", "w0.2", "w0.17"}) {
    roster.Join(again, "host:9", kHost);
    EXPECT_EQ(ParentOf(roster, child), "learner") << again;
  }
  // Another machine of that name, and names that only look alike.
  for (const auto& [other, host] : {std::pair("w0.3", "10.0.0.8"), std::pair("w0-1", kHost)}) {
    const auto ticket = roster.Join(other, "host:9", host);
    EXPECT_EQ(ParentOf(roster, child), other);
    roster.Leave(ticket);
  }
}

// Promise: A worker's leases are its own.
TEST(RelayRosterTest, AccusationsOfOneWorkersProcessesCountOnce) {
  RelayRoster roster(2);
  roster.Join("judge", "", kHost);
  const auto accuse = [&](const std::string& peer) {
    return roster.Accuse(Report("judge", peer, v1::PEER_FAULT_CORRUPT), kHost);
  };
  roster.Join("w0", "host:0", kHost);
  EXPECT_TRUE(accuse("w0"));
  for (const std::string again : {"w0.1", "w0.2", "w0.3"}) {
    roster.Join(again, "host:1", kHost);
    EXPECT_FALSE(accuse(again)) << "it is no source already";
  }
  roster.Join("w1", "host:2", kHost);
  EXPECT_TRUE(accuse("w1")) << "the second worker that this host accuses";
  roster.Join("w2", "host:3", kHost);
  EXPECT_FALSE(accuse("w2"));
}

TEST(RelayRosterTest, SilentPeerIsHandedOutAgainWhenItIsHeardOf) {
  RelayRoster roster(2);
  const auto tickets = JoinAll(roster, 3);
  EXPECT_TRUE(roster.Accuse(Report("w2", "w0", v1::PEER_FAULT_STALLED), kHost));
  EXPECT_EQ(ParentOf(roster, tickets[0]), "w1");  // A leaf: the others went before.
  EXPECT_EQ(ParentOf(roster, tickets[2]), "learner");
  EXPECT_EQ(roster.excluded(), 1u);
  roster.HeardOf("w0");
  EXPECT_EQ(ParentOf(roster, tickets[2]), "w0");
}

// Promise: A worker's leases are its own.
TEST(RelayRosterTest, AHostThatAccusesManyIsNotBelievedWhateverNamesItUses) {
  RelayRoster roster(2);
  JoinAll(roster, 10);
  const auto accuse = [&](const std::string& by, int peer, const std::string& host) {
    return roster.Accuse(Report(by, "w" + std::to_string(peer), v1::PEER_FAULT_CORRUPT), host);
  };
  int believed = 0;
  for (int peer = 0; peer < 8; ++peer) {
    believed += accuse("w" + std::to_string(8 + peer % 2), peer, kHost);
  }
  EXPECT_EQ(believed, 2);
  roster.Join("other", "", "10.0.0.8");
  EXPECT_TRUE(accuse("other", 5, "10.0.0.8"));
  EXPECT_FALSE(roster.Accuse(Report("other", "other", v1::PEER_FAULT_CORRUPT), "10.0.0.8"));
}

// Promise: A worker's leases are its own.
TEST(RelayRosterTest, OnlyAWatcherIsHeardAndOnlyFromItsHost) {
  RelayRoster roster(2);
  const auto tickets = JoinAll(roster, 3);
  for (const v1::PeerFault fault : {v1::PEER_FAULT_CORRUPT, v1::PEER_FAULT_STALLED}) {
    EXPECT_FALSE(roster.Accuse(Report("made-up", "w0", fault), kHost));
    EXPECT_FALSE(roster.Accuse(Report("w2", "w0", fault), "10.0.0.9"));
  }
  EXPECT_EQ(roster.excluded(), 0u);
  roster.Leave(tickets[2]);
  EXPECT_FALSE(roster.Accuse(Report("w2", "w0", v1::PEER_FAULT_CORRUPT), kHost));
}

TEST(RelayRosterTest, WhoLeavesIsNobodysSource) {
  RelayRoster roster(2);
  const auto tickets = JoinAll(roster, 4);
  roster.Leave(tickets[0]);
  EXPECT_EQ(ParentOf(roster, tickets[2]), "learner");
  EXPECT_EQ(ParentOf(roster, tickets[3]), "w1");
  EXPECT_TRUE(roster.PeersOf(tickets[0]).empty());
}

TEST(RelayRosterTest, AWorkerThatWatchesAgainHasOnePlace) {
  RelayRoster roster(2);
  const auto tickets = JoinAll(roster, 3);
  const auto again = roster.Join("w0", "host:0", kHost);
  EXPECT_EQ(roster.watchers(), 3u);
  roster.Leave(tickets[0]);  // The old call notices last.
  EXPECT_EQ(roster.watchers(), 3u);
  EXPECT_EQ(ParentOf(roster, again), "w1");
}

TEST(RelayRosterTest, AWatcherWithoutANameIsNobodysSource) {
  RelayRoster roster(1);
  roster.Join("", "10.0.0.1:5", "10.0.0.1");
  const RelayRoster::Ticket named = roster.Join("b", "10.0.0.2:5", "10.0.0.2");
  const RelayRoster::Ticket last = roster.Join("c", "10.0.0.3:5", "10.0.0.3");
  for (const RelayRoster::Ticket ticket : {named, last}) {
    for (const auto& peer : roster.PeersOf(ticket)) EXPECT_NE(peer.worker_id(), "");
  }
}

// Promise: A worker's leases are its own.
TEST(RelayRosterTest, EndpointIsWhereOthersReachIt) {
  EXPECT_EQ(RelayEndpoint("127.0.0.1:5", "ipv4:127.0.0.1:40"), "127.0.0.1:5");
  EXPECT_EQ(RelayEndpoint("0.0.0.0:5", "ipv4:10.0.0.7:40"), "10.0.0.7:5");
  EXPECT_EQ(RelayEndpoint("[::]:5", "ipv6:%5Bfe80::1%5D:40"), "[fe80::1]:5");
  EXPECT_EQ(RelayEndpoint("10.0.0.7:5", "ipv4:10.0.0.7:40"), "10.0.0.7:5");
  EXPECT_EQ(RelayEndpoint("localhost:5", "ipv6:%5B::1%5D:40"), "localhost:5");
  // A third machine: others would be sent there.
  EXPECT_EQ(RelayEndpoint("10.0.0.8:5", "ipv4:10.0.0.7:40"), "");
  EXPECT_EQ(RelayEndpoint("node7:5", "ipv4:10.0.0.7:40"), "");
  EXPECT_EQ(RelayEndpoint("10.0.0.8:5", "ipv4:127.0.0.1:40"), "");
  EXPECT_EQ(RelayEndpoint("127.0.0.1:5", "ipv4:10.0.0.7:40"), "");  // Another machine's loopback.
  EXPECT_EQ(RelayEndpoint("0.0.0.0:5", "unix:/tmp/socket"), "");
  EXPECT_EQ(RelayEndpoint("", "ipv4:10.0.0.7:40"), "");
}

}  // namespace
}  // namespace oxbow::weights
