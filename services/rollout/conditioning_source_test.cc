// SPDX-License-Identifier: Apache-2.0
// Conditioning by its hash, over real gRPC on port 0, from a learner and from peers that have it,
// have it no more, are away, or send something else.
#include "services/rollout/conditioning_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "rpc/server.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weight_relay.h"
#include "telemetry/metrics.h"

namespace oxbow::rollout {
namespace {

using ::testing::HasSubstr;

constexpr Epoch kEpoch{7};

class ConditioningSourceTest : public ::testing::Test {
 protected:
  ConditioningSourceTest()
      : channel_({.epoch = kEpoch, .piece_bytes = 1000, .content = &learner_has_}, publish_metrics_,
                 Clock::Steady(), nullptr),
        server_(*rpc::Server::Start({}, {&channel_})),
        source_({.learner = server_->endpoint(),
                 .epoch = kEpoch,
                 .worker_id = "w",
                 .tries = 2,
                 .backoff_first = absl::Milliseconds(1),
                 .bytes_max = 1 << 20},
                held_, metrics_, Clock::Steady()) {}

  // A lease of conditioning that the learner serves.
  v1::Lease LeaseOf(const std::string& bytes) {
    served_ = std::make_shared<const std::string>(bytes);
    learner_has_.Put(Sha256(bytes), served_);
    v1::Lease lease;
    lease.set_conditioning_sha256(Sha256(bytes));
    lease.set_conditioning_bytes(bytes.size());
    return lease;
  }

  // A peer that has `content` under the hash of the lease.
  std::unique_ptr<weights::WeightRelay> Peer(v1::Lease& lease, const std::string& content) {
    auto relay = *weights::WeightRelay::Start({.piece_bytes = 1000}, follow_metrics_);
    if (!content.empty()) {
      relay->content().Put(lease.conditioning_sha256(),
                           std::make_shared<const std::string>(content));
    }
    v1::Lease::Peer& peer = *lease.add_conditioning_peers();
    peer.set_worker_id("peer" + std::to_string(lease.conditioning_peers_size()));
    peer.set_endpoint(relay->endpoint());
    return relay;
  }

  double Bytes(const std::string& source) const {
    const std::string line = "oxbow_rollout_conditioning_bytes_total{source=\"" + source + "\"} ";
    const std::string text = telemetry::ScrapeText(registry_);
    return std::stod(text.substr(text.find(line) + line.size()));
  }

  prometheus::Registry registry_;
  RolloutMetrics metrics_{registry_};
  weights::FollowMetrics follow_metrics_{registry_};
  weights::PublishMetrics publish_metrics_{registry_};
  weights::ContentStore learner_has_{/*bytes_max=*/0};
  weights::Chunk served_;
  weights::WeightChannelService channel_;
  std::unique_ptr<rpc::Server> server_;
  weights::ContentStore held_{1 << 20};
  ConditioningSource source_;
};

TEST_F(ConditioningSourceTest, WhatWasFetchedOnceIsHeld) {
  const std::string bytes(4321, 'b');
  const v1::Lease lease = LeaseOf(bytes);
  EXPECT_EQ(source_.Held(lease), nullptr);
  const auto fetched = source_.Fetch(lease);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(**fetched, bytes);
  EXPECT_EQ(source_.Held(lease), *fetched);
  EXPECT_EQ(Bytes("learner"), 4321);
  EXPECT_EQ(Bytes("held"), 4321);
}

TEST_F(ConditioningSourceTest, PeersAreAskedBeforeTheLearner) {
  const std::string bytes(2345, 'p');
  v1::Lease lease = LeaseOf(bytes);
  const auto without = Peer(lease, "");
  const auto with = Peer(lease, bytes);
  const auto fetched = source_.Fetch(lease);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(**fetched, bytes);
  EXPECT_EQ(Bytes("peer"), 2345);
  EXPECT_EQ(Bytes("learner"), 0);
}

TEST_F(ConditioningSourceTest, OtherBytesThanTheHashSaysAreRefusedWhoeverSendsThem) {
  const std::string bytes(2000, 'a');
  v1::Lease lease = LeaseOf(bytes);
  const auto wrong = Peer(lease, std::string(2000, 'x'));
  const auto longer = Peer(lease, bytes + "a");
  const auto shorter = Peer(lease, bytes.substr(1));
  const auto fetched = source_.Fetch(lease);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(**fetched, bytes);
  EXPECT_EQ(Bytes("learner"), 2000);
  // The learner itself.
  v1::Lease forged = lease;
  forged.clear_conditioning_peers();
  forged.set_conditioning_sha256(Sha256("something else"));
  const auto lie = std::make_shared<const std::string>(bytes);
  learner_has_.Put(forged.conditioning_sha256(), lie);
  EXPECT_EQ(source_.Fetch(forged).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(source_.Held(forged), nullptr);
}

TEST_F(ConditioningSourceTest, APeerThatIsAwayCostsNothingButTheTry) {
  const std::string bytes(100, 'a');
  v1::Lease lease = LeaseOf(bytes);
  Peer(lease, bytes).reset();
  const auto fetched = source_.Fetch(lease);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(Bytes("learner"), 100);
}

TEST_F(ConditioningSourceTest, WhatNobodyHasAnyMoreAndWhatALeaseCannotNameIsAnError) {
  v1::Lease lease = LeaseOf("gone");
  served_.reset();
  const absl::Status gone = source_.Fetch(lease).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(gone.message(), HasSubstr("conditioning: "));
  EXPECT_EQ(source_.Fetch(v1::Lease()).status().code(), absl::StatusCode::kInvalidArgument);
  lease.set_conditioning_bytes(uint64_t{1} << 40);
  EXPECT_EQ(source_.Fetch(lease).status().code(), absl::StatusCode::kInvalidArgument);
}

// Sixteen threads want what the learner has, large and small, and two of what it has not: whoever
// can be served is, in fewer calls than contents, and each failure is told to its own thread.
TEST_F(ConditioningSourceTest, WhatSeveralThreadsWantComesTogether) {
  constexpr int kContents = 16;
  std::vector<v1::Lease> leases;
  std::vector<weights::Chunk> kept;
  for (int i = 0; i < kContents; ++i) {
    leases.push_back(LeaseOf(std::string(i % 3 == 0 ? 2500 : 100 + i, static_cast<char>('a' + i))));
    kept.push_back(served_);
  }
  kept[5].reset();
  kept[6].reset();
  served_.reset();
  std::vector<absl::StatusOr<weights::Chunk>> fetched(kContents);
  std::vector<std::thread> threads;
  for (int i = 0; i < kContents; ++i) {
    threads.emplace_back([&, i] { fetched[i] = source_.Fetch(leases[i]); });
    threads.emplace_back([&, i] { (void)source_.Fetch(leases[i]); });  // The same prompt twice.
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kContents; ++i) {
    if (kept[i] == nullptr) {
      EXPECT_EQ(fetched[i].status().code(), absl::StatusCode::kNotFound) << i;
    } else {
      ASSERT_TRUE(fetched[i].ok()) << i << ": " << fetched[i].status();
      EXPECT_EQ(**fetched[i], *kept[i]);
    }
  }
}

TEST_F(ConditioningSourceTest, AfterCancelNothingIsFetched) {
  const v1::Lease lease = LeaseOf("late");
  source_.Cancel();
  EXPECT_EQ(source_.Fetch(lease).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace oxbow::rollout
