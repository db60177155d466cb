// SPDX-License-Identifier: Apache-2.0
// Laws of the relay tree over random sets of watchers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "services/weights/relay_roster.h"

namespace oxbow::weights {
namespace {

using Places = std::vector<RelayPlace>;

size_t OfTheLearner(const Places& places) {
  return static_cast<size_t>(std::count_if(places.begin(), places.end(),
                                           [](const RelayPlace& p) { return p.peers.empty(); }));
}

size_t DepthOf(const Places& places) {
  size_t depth = 0;
  for (const RelayPlace& place : places) depth = std::max(depth, place.depth);
  return depth;
}

TEST(RelayTreeTest, LearnerServesFanoutWatchersAndDepthGrowsLikeTheLogarithm) {
  for (size_t fanout = 2; fanout <= 4; ++fanout) {
    for (size_t n = 1; n <= 2000; n = n * 3 / 2 + 1) {
      const Places places = PlanRelays(std::vector<bool>(n, true), fanout);
      EXPECT_EQ(OfTheLearner(places), std::min(n, fanout));
      // A tree of depth d has fanout + ... + fanout^d places.
      const double depth = std::ceil(
          std::log(1 + static_cast<double>(n * (fanout - 1)) / static_cast<double>(fanout)) /
              std::log(static_cast<double>(fanout)) -
          1e-9);
      EXPECT_EQ(DepthOf(places), static_cast<size_t>(depth))
          << n << " watchers, fan-out " << fanout;
    }
  }
}

// Any mixture of those who relay and those who do not (too old, excluded, behind a wall).
// Promise: No slow worker delays new weights. The learner sends each changed chunk at most
// `services.weight_fanout` times while relays live. A watcher or peer that is slow, stopped or dead
// delays no other. One worker of a machine fetches over the network, for all of them. A run
// continues when a relaying worker is killed.
TEST(RelayTreeTest, LawsHoldForAnyWatchers) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const size_t n = random() % 60;
    const size_t fanout = random() % 5;
    const uint32_t able_percent = random() % 101;
    std::vector<bool> relays(n);
    for (size_t i = 0; i < n; ++i) relays[i] = random() % 100 < able_percent;
    const auto able = static_cast<size_t>(std::count(relays.begin(), relays.end(), true));
    const Places places = PlanRelays(relays, fanout);

    ASSERT_EQ(places.size(), n);
    EXPECT_EQ(OfTheLearner(places), fanout == 0 || able == 0 ? n : std::min(n, fanout));
    std::vector<size_t> children(n);
    for (size_t i = 0; i < n; ++i) {
      const RelayPlace& place = places[i];
      EXPECT_LE(place.peers.size(), 2u);
      EXPECT_EQ(place.depth, place.peers.empty() ? 1 : places[place.peers[0]].depth + 1);
      for (const size_t peer : place.peers) {
        EXPECT_TRUE(relays[peer]) << "watcher " << i << " is sent to " << peer;
        EXPECT_LT(places[peer].depth, place.depth);  // So there is no broadcast_group.
      }
      if (place.peers.size() == 2) {
        EXPECT_NE(place.peers[0], place.peers[1]);
      }
      if (!place.peers.empty()) ++children[place.peers[0]];
    }
    if (able == 0 || fanout == 0) continue;
    const size_t dealt = n > fanout ? (n - fanout + able - 1) / able : 0;
    EXPECT_LE(*std::max_element(children.begin(), children.end()), std::max(fanout, dealt));
  }
}

// Promise: No slow worker delays new weights.
TEST(RelayTreeTest, OneWatcherOfEachMachineFetchesOverTheNetwork) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const size_t n = random() % 60, fanout = 1 + random() % 4;
    const uint32_t able_percent = random() % 101, machines = 1 + random() % 12;
    std::vector<bool> relays(n);
    std::vector<std::string> hosts(n);
    std::map<std::string, bool> has_source;
    for (size_t i = 0; i < n; ++i) {
      relays[i] = random() % 100 < able_percent;
      const uint32_t machine = random() % machines;
      if (machine > 0) hosts[i] = "10.0.0." + std::to_string(machine);
      has_source[hosts[i]] = has_source[hosts[i]] || relays[i];
    }
    const Places places = PlanRelays(relays, hosts, fanout);
    ASSERT_EQ(places.size(), n);
    std::map<std::string, int> fetched;  // By host, from elsewhere.
    size_t of_learner = 0;
    for (size_t i = 0; i < n; ++i) {
      const RelayPlace& place = places[i];
      EXPECT_LE(place.peers.size(), 2u);
      for (const size_t peer : place.peers) {
        EXPECT_TRUE(relays[peer]) << "watcher " << i << " is sent to " << peer;
        EXPECT_LT(places[peer].depth, place.depth);
      }
      if (place.peers.size() == 2) {
        EXPECT_NE(place.peers[0], place.peers[1]);
      }
      if (place.peers.empty()) ++of_learner;
      EXPECT_EQ(place.depth, place.peers.empty() ? 1 : places[place.peers[0]].depth + 1);
      const bool inside = !place.peers.empty() && hosts[place.peers[0]] == hosts[i];
      if (!hosts[i].empty() && !inside) ++fetched[hosts[i]];
    }
    for (const auto& [host, count] : fetched) {
      if (has_source[host]) {
        EXPECT_EQ(count, 1) << host;
      }
    }
    const bool none = std::count(relays.begin(), relays.end(), true) == 0;
    EXPECT_LE(of_learner, none ? n : fanout);
    const Places apart = PlanRelays(relays, std::vector<std::string>(n), fanout);
    const Places plain = PlanRelays(relays, fanout);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(apart[i].peers, plain[i].peers);
  }
}

TEST(RelayTreeTest, InAChainTheSecondSourceIsTheParentsParent) {
  const Places places = PlanRelays(std::vector<bool>(5, true), 1);
  EXPECT_EQ(places[1].peers, (std::vector<size_t>{0}));
  for (size_t i = 2; i < places.size(); ++i) {
    EXPECT_EQ(places[i].peers, (std::vector<size_t>{i - 1, i - 2}));
  }
}

// So the death of one source costs nobody on its machine a second copy from elsewhere.
// Promise: No slow worker delays new weights.
TEST(RelayTreeTest, AMachinesHeadIsItsFirstSourceAndThoseBelowItHaveASecondOne) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    const size_t n = random() % 60, fanout = 1 + random() % 4;
    std::vector<bool> relays(n);
    std::vector<std::string> hosts(n);
    std::map<std::string, size_t> heads;
    for (size_t i = 0; i < n; ++i) {
      relays[i] = random() % 100 < 70;
      hosts[i] = "10.0.0." + std::to_string(random() % 6);
      if (relays[i]) heads.emplace(hosts[i], i);
    }
    const Places places = PlanRelays(relays, hosts, fanout);
    for (size_t i = 0; i < n; ++i) {
      const auto head = heads.find(hosts[i]);
      if (head == heads.end()) continue;
      const std::vector<size_t>& peers = places[i].peers;
      if (head->second == i) {
        for (const size_t peer : peers) EXPECT_NE(hosts[peer], hosts[i]);
        continue;
      }
      ASSERT_FALSE(peers.empty());
      EXPECT_EQ(hosts[peers[0]], hosts[i]);
      const std::vector<size_t>& above = places[head->second].peers;
      if (peers[0] != head->second) {
        ASSERT_EQ(peers.size(), 2u);
        EXPECT_EQ(hosts[peers[1]], hosts[i]);
      } else if (above.empty()) {
        EXPECT_EQ(peers.size(), 1u) << "the learner is next";
      } else {
        EXPECT_EQ(peers.back(), above[0]);
      }
    }
  }
}

TEST(RelayTreeTest, ALateJoinerMovesNobody) {
  for (size_t n = 1; n < 40; ++n) {
    const Places before = PlanRelays(std::vector<bool>(n, true), 2);
    const Places after = PlanRelays(std::vector<bool>(n + 1, true), 2);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(before[i].depth, after[i].depth);
      ASSERT_EQ(before[i].peers.empty(), after[i].peers.empty());
      if (!before[i].peers.empty()) {
        EXPECT_EQ(before[i].peers[0], after[i].peers[0]);
      }
    }
  }
}

TEST(RelayTreeTest, SevenWatchers) {
  const Places places = PlanRelays(std::vector<bool>(7, true), 2);
  EXPECT_TRUE(places[1].peers.empty());
  EXPECT_EQ(places[2].peers, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(places[5].peers, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(places[6].peers, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(places[6].depth, 3u);
}

}  // namespace
}  // namespace oxbow::weights
