// SPDX-License-Identifier: Apache-2.0
// Broadcast over Gloo on loopback, with the real service and followers: members that come, go,
// stop in the middle of a round, or receive wrong bytes.
#include "services/weights/broadcast_group.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weight_follower.h"
#include "services/weights/weight_relay.h"
#include "telemetry/metrics.h"

namespace oxbow::weights {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(20);
constexpr absl::Duration kSilence = absl::Milliseconds(500);
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(2);
constexpr Epoch kEpoch{7};
constexpr uint64_t kChunk = 300 << 10;  // Three to a piece.
constexpr uint64_t kChanged = 8 * kChunk + 5;

// Chunks that every version shares, and 9 that are the version's own.
Snapshot Version(uint64_t version) {
  std::mt19937_64 random(version);
  std::string adapter(kChanged, '\0');
  for (size_t i = 0; i + 8 <= adapter.size(); i += 8) {
    const uint64_t word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, &adapter[i]);
  }
  adapter.back() = static_cast<char>(version);
  const auto bytes = [](std::string data) {
    const auto size = static_cast<int64_t>(data.size());
    return io::TensorBytes{io::DType::kU8, {size}, std::move(data)};
  };
  return MakeSnapshot({kEpoch, PolicyVersion(version), LearnerStep(version)},
                      {{"base", bytes(std::string(2 * kChunk + 1, 'b'))}},
                      {{"adapter", bytes(std::move(adapter))}}, kChunk);
}

double Sample(prometheus::Registry& registry, const std::string& series) {
  const std::string text = telemetry::ScrapeText(registry);
  const size_t found = text.find("\n" + series + " ");
  double value = -1;
  if (found == std::string::npos) return value;
  const size_t from = found + series.size() + 2;
  (void)absl::SimpleAtod(text.substr(from, text.find('\n', from) - from), &value);
  return value;
}

// A member's broadcast group as the test wants it.
struct Faults {
  std::atomic<int> corrupt_pieces = 0;  // The next so many have a wrong byte.
  std::atomic<int> stops_after = -1;    // Pieces until it takes part no more; -1: never.
  absl::Notification goes_on;
};

class FaultyBroadcastGroup final : public BroadcastGroup {
 public:
  FaultyBroadcastGroup(std::unique_ptr<BroadcastGroup> broadcast_group, Faults& faults)
      : group_(std::move(broadcast_group)), faults_(faults) {}
  absl::Status Broadcast(std::string& text) override { return group_->Broadcast(text); }
  std::unique_ptr<Transfer> Start(std::span<char> bytes,
                                  std::shared_ptr<const void> owner) override {
    if (faults_.stops_after >= 0 && faults_.stops_after-- == 0) {
      faults_.goes_on.WaitForNotificationWithTimeout(kDeadline);
    }
    return std::make_unique<FaultyTransfer>(group_->Start(bytes, std::move(owner)), bytes, faults_);
  }
  absl::Status Barrier() override { return group_->Barrier(); }
  void Abort(const std::string& reason) override { group_->Abort(reason); }

 private:
  class FaultyTransfer final : public Transfer {
   public:
    FaultyTransfer(std::unique_ptr<Transfer> transit, std::span<char> bytes, Faults& faults)
        : transit_(std::move(transit)), bytes_(bytes), faults_(faults) {}
    absl::Status Wait() override {
      const absl::Status status = transit_->Wait();
      if (faults_.corrupt_pieces > 0) {
        --faults_.corrupt_pieces;
        bytes_[0] ^= 1;
      }
      return status;
    }

   private:
    const std::unique_ptr<Transfer> transit_;
    const std::span<char> bytes_;
    Faults& faults_;
  };
  const std::unique_ptr<BroadcastGroup> group_;
  Faults& faults_;
};

JoinBroadcastGroup Join() {
  return JoinOverRanks({.join_within = absl::Seconds(5), .silence = kSilence});
}

class Worker {
 public:
  Worker(const std::string& id, const std::string& learner) {
    auto relay = WeightRelay::Start({}, metrics_);
    EXPECT_TRUE(relay.ok()) << relay.status();
    relay_ = *std::move(relay);
    const auto join =
        [this](const BroadcastPlace& place) -> absl::StatusOr<std::unique_ptr<BroadcastGroup>> {
      auto broadcast_group = Join()(place);
      if (!broadcast_group.ok()) return broadcast_group.status();
      return std::make_unique<FaultyBroadcastGroup>(*std::move(broadcast_group), faults);
    };
    follower_ =
        std::make_unique<WeightFollower>(WeightFollower::Options{.endpoints = {learner},
                                                                 .epoch = kEpoch,
                                                                 .worker_id = id,
                                                                 .relay = relay_.get(),
                                                                 .join_broadcast_group = join},
                                         metrics_, Clock::Steady(), [this] {
                                           absl::MutexLock lock(&mutex_);
                                           ++ready_;
                                         });
  }
  ~Worker() { follower_.reset(); }

  // Waits for this version, reports it, and gives the bytes that came for it.
  uint64_t Await(uint64_t version) {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        const auto ready = [this] { return ready_ > taken_; };
        if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), kDeadline)) {
          ADD_FAILURE() << "version " << version << " did not come";
          return 0;
        }
        taken_ = ready_;
      }
      const auto snapshot = follower_->TakeNewest();
      if (!snapshot || snapshot->manifest.policy_version() != version) continue;
      for (const auto& [hash, chunk] : Version(version).chunks) {
        EXPECT_TRUE(*snapshot->chunks.at(hash) == *chunk) << "wrong weights were handed out";
      }
      v1::ReportAppliedRequest report;
      report.set_policy_version(version);
      EXPECT_TRUE(follower_->Report(report).ok());
      return snapshot->fetched_bytes;
    }
  }
  double Fetched(const std::string& source) {
    return Sample(registry_,
                  absl::StrCat("oxbow_weights_fetched_bytes_total{source=\"", source, "\"}"));
  }
  double corrupt() { return Sample(registry_, "oxbow_weights_corrupt_chunks_total"); }

  Faults faults;

 private:
  prometheus::Registry registry_;
  FollowMetrics metrics_{registry_};
  std::unique_ptr<WeightRelay> relay_;
  absl::Mutex mutex_;
  int ready_ = 0;
  int taken_ = 0;
  std::unique_ptr<WeightFollower> follower_;
};

class BroadcastGroupTest : public ::testing::Test {
 protected:
  BroadcastGroupTest() {
    at::set_num_threads(1);
    auto server = rpc::Server::Start({}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~BroadcastGroupTest() override {
    for (auto& worker : workers_) {
      if (worker != nullptr && !worker->faults.goes_on.HasBeenNotified()) {
        worker->faults.goes_on.Notify();
      }
    }
    workers_.clear();
    service_.Stop();
  }

  // Workers that have version 1, in one broadcast_group.
  void Gather(int count) {
    ASSERT_TRUE(service_.Publish(Version(1)).ok());
    for (int i = 0; i < count; ++i) {
      Add();
      workers_.back()->Await(1);
    }
    AwaitBroadcastGroup(count);
  }
  void Add() {
    workers_.push_back(
        std::make_unique<Worker>(absl::StrCat("w", workers_.size()), server_->endpoint()));
  }
  void AwaitBroadcastGroup(int members) { AwaitSample("oxbow_weights_broadcast_members", members); }
  void AwaitSample(const std::string& series, double value) {
    const absl::Duration until = Clock::Steady().Now() + kDeadline;
    absl::Notification never;
    while (Sample(registry_, series) != value) {
      ASSERT_LT(Clock::Steady().Now(), until) << series << " is " << Sample(registry_, series);
      never.WaitForNotificationWithTimeout(kBetweenLooks);
    }
  }
  double Rounds(const std::string& outcome) {
    return Sample(registry_,
                  absl::StrCat("oxbow_weights_broadcast_rounds_total{outcome=\"", outcome, "\"}"));
  }
  void AwaitRounds(const std::string& outcome, double count) {
    AwaitSample(absl::StrCat("oxbow_weights_broadcast_rounds_total{outcome=\"", outcome, "\"}"),
                count);
  }
  const std::string& learner() { return server_->endpoint(); }

  prometheus::Registry registry_;
  PublishMetrics metrics_{registry_};
  WeightChannelService service_{
      {.epoch = kEpoch, .join_broadcast_group = Join()}, metrics_, Clock::Steady(), nullptr};
  std::unique_ptr<rpc::Server> server_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

class BroadcastGroupSizeTest : public BroadcastGroupTest,
                               public ::testing::WithParamInterface<int> {};

TEST_P(BroadcastGroupSizeTest, WhatChangedComesByBroadcastAlone) {
  Gather(GetParam());
  for (uint64_t version = 2; version <= 4; ++version) {
    const double served = Sample(registry_, "oxbow_weights_served_bytes_total");
    ASSERT_TRUE(service_.Publish(Version(version)).ok());
    for (auto& worker : workers_) {
      EXPECT_EQ(worker->Await(version), kChanged);
      EXPECT_EQ(worker->Fetched("broadcast"), kChanged * (version - 1));
    }
    EXPECT_EQ(Sample(registry_, "oxbow_weights_served_bytes_total"), served);
    AwaitRounds("whole", static_cast<double>(version - 1));
  }
}
INSTANTIATE_TEST_SUITE_P(Workers, BroadcastGroupSizeTest, ::testing::Values(1, 3));

// Promise: A broadcast can only save time.
TEST_F(BroadcastGroupTest, WrongBytesAreNeverHandedOutAndFetchedAgain) {
  Gather(2);
  workers_[1]->faults.corrupt_pieces = 2;
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  workers_[0]->Await(2);
  EXPECT_EQ(workers_[1]->Await(2), kChanged + 2 * kChunk);
  EXPECT_EQ(workers_[1]->corrupt(), 2);
  EXPECT_EQ(workers_[1]->Fetched("broadcast"), kChanged);
  // The broadcast group is as good as before.
  AwaitRounds("whole", 1);
  ASSERT_TRUE(service_.Publish(Version(3)).ok());
  for (auto& worker : workers_) EXPECT_EQ(worker->Await(3), kChanged);
  AwaitRounds("whole", 2);
}

// Promise: A broadcast can only save time.
TEST_F(BroadcastGroupTest, AMemberThatStopsInTheMiddleDelaysNobodyForLong) {
  Gather(3);
  workers_[1]->faults.stops_after = 1;
  const absl::Duration start = Clock::Steady().Now();
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  EXPECT_LT(Clock::Steady().Now() - start, kSilence) << "publishing waits for nobody";
  workers_[0]->Await(2);
  workers_[2]->Await(2);
  EXPECT_LT(Clock::Steady().Now() - start, kSilence + absl::Seconds(4));
  AwaitRounds("failed", 1);
  // Without it the next round works; it is back in once it has shown that it lives.
  AwaitBroadcastGroup(2);
  ASSERT_TRUE(service_.Publish(Version(3)).ok());
  EXPECT_EQ(workers_[0]->Await(3), kChanged);
  EXPECT_EQ(workers_[2]->Await(3), kChanged);
  AwaitRounds("whole", 1);
  workers_[1]->faults.goes_on.Notify();
  workers_[1]->Await(3);
  AwaitBroadcastGroup(3);
  ASSERT_TRUE(service_.Publish(Version(4)).ok());
  for (auto& worker : workers_) worker->Await(4);
  AwaitRounds("whole", 2);
}

TEST_F(BroadcastGroupTest, ALateComerIsServedAtOnceAndTakesPartFromThenOn) {
  Gather(1);
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  workers_[0]->Await(2);
  Add();
  EXPECT_GT(workers_[1]->Await(2), kChanged);
  EXPECT_EQ(workers_[1]->Fetched("broadcast"), 0);
  AwaitBroadcastGroup(2);
  ASSERT_TRUE(service_.Publish(Version(3)).ok());
  for (auto& worker : workers_) EXPECT_EQ(worker->Await(3), kChanged);
  EXPECT_EQ(workers_[1]->Fetched("broadcast"), kChanged);
}

TEST_F(BroadcastGroupTest, WhoLeavesIsNotWaitedFor) {
  Gather(3);
  workers_[0].reset();
  AwaitBroadcastGroup(2);
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  EXPECT_EQ(workers_[1]->Await(2), kChanged);
  EXPECT_EQ(workers_[2]->Await(2), kChanged);
  AwaitRounds("whole", 1);
  EXPECT_EQ(Rounds("failed"), 0);
}

// A watcher that is invited and never comes: the others relay meanwhile. No one waits for the end
// of the time to join, not even the learner when it stops.
// Promise: A broadcast can only save time.
TEST_F(BroadcastGroupTest, AnInvitationThatIsNotFollowedHoldsUpNothing) {
  Gather(1);
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(learner()));
  const auto context = rpc::ContextWithDeadline(kDeadline);
  v1::WatchRequest request;
  request.set_worker_id("idle");
  request.set_broadcast_device("cpu");
  request.set_have_any(true);
  request.set_have_version(1);
  const auto watch = stub->Watch(context.get(), request);
  v1::WatchResponse told;
  ASSERT_TRUE(watch->Read(&told));
  EXPECT_FALSE(told.has_manifest());
  EXPECT_EQ(told.invitation().size(), 3u);
  const absl::Duration start = Clock::Steady().Now();
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  EXPECT_EQ(workers_[0]->Await(2), kChanged);
  EXPECT_EQ(workers_[0]->Fetched("broadcast"), 0);
  EXPECT_EQ(Rounds("skipped"), 1);
  workers_.clear();
  service_.Stop();
  context->TryCancel();
  watch->Finish();
  EXPECT_LT(Clock::Steady().Now() - start, absl::Seconds(4));
}

}  // namespace
}  // namespace oxbow::weights
