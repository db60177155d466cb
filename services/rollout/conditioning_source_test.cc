// SPDX-License-Identifier: Apache-2.0
// Conditioning by its hash, over real gRPC on port 0, from a learner and from peers that have it,
// have it no more, are away, or send something else.
#include "services/rollout/conditioning_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/sha256.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weight_relay.h"
#include "telemetry/metrics.h"

namespace oxbow::rollout {
namespace {

using ::testing::HasSubstr;

constexpr Epoch kEpoch{7};

// Counts the calls, and holds the first one until it is let go.
class HoldingChannel final : public weights::WeightChannelService {
 public:
  using WeightChannelService::WeightChannelService;

  void HoldFirst() { hold_ = true; }
  void AwaitFirst() { came_.WaitForNotification(); }
  void LetGo() { go_.Notify(); }
  int calls() const { return calls_; }

 private:
  absl::Status Prepare(v1::FetchRequest&, weights::FetchStream&) override {
    if (calls_++ == 0 && hold_) {
      came_.Notify();
      go_.WaitForNotification();
    }
    return absl::OkStatus();
  }
  std::atomic<int> calls_ = 0;
  std::atomic<bool> hold_ = false;
  absl::Notification came_, go_;
};

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
                held_, metrics_, follow_metrics_, Clock::Steady()) {}

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
  HoldingChannel channel_;
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

// Promise: Conditioning is what the learner made.
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

// Promise: Conditioning is what the learner made. No worker samples with conditioning whose SHA-256
// is not that of its lease, whatever its source. Decoded, it has the bits of the learner's, though
// it travels in 16 bits where they hold every value. A peer that sends other bytes is left for the
// next source and reported. A worker that starts again holds nothing and fetches again. The learner
// sends a conditioning once for as long as workers hold it, and serves that of each group that
// waits for a result.
TEST_F(ConditioningSourceTest, OtherBytesThanTheHashSaysAreRefusedWhoeverSendsThem) {
  const std::string bytes(2000, 'a');
  v1::Lease lease = LeaseOf(bytes);
  const auto wrong = Peer(lease, std::string(2000, 'x'));
  const auto longer = Peer(lease, "x" + bytes);
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

// Promise: Conditioning is what the learner made.
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

// While a call for one prompt is under way, threads want sixteen others, large and small, each
// twice: all are served, in far fewer calls than there are prompts.
TEST_F(ConditioningSourceTest, WhatSeveralThreadsWantComesInOneCall) {
  constexpr int kContents = 16;
  const v1::Lease first = LeaseOf("first");
  const weights::Chunk keep_first = served_;
  std::vector<v1::Lease> leases;
  std::vector<weights::Chunk> kept;
  for (int i = 0; i < kContents; ++i) {
    leases.push_back(LeaseOf(std::string(i % 3 == 0 ? 2500 : 100 + i, static_cast<char>('a' + i))));
    kept.push_back(served_);
  }
  served_.reset();
  channel_.HoldFirst();
  std::thread leader([&] { EXPECT_TRUE(source_.Fetch(first).ok()); });
  channel_.AwaitFirst();
  std::vector<absl::StatusOr<weights::Chunk>> fetched(kContents);
  std::vector<std::thread> threads;
  std::atomic<int> asking = 0;
  for (int i = 0; i < kContents; ++i) {
    for (const bool again : {false, true}) {
      threads.emplace_back([&, i, again] {
        ++asking;
        auto got = source_.Fetch(leases[i]);
        if (!again) fetched[i] = std::move(got);
      });
    }
  }
  while (asking < 2 * kContents) std::this_thread::yield();
  channel_.LetGo();
  leader.join();
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kContents; ++i) {
    ASSERT_TRUE(fetched[i].ok()) << i << ": " << fetched[i].status();
    EXPECT_EQ(**fetched[i], *kept[i]);
  }
  // A thread may come a moment after the others: it is in the next call.
  EXPECT_LE(channel_.calls(), 1 + kContents / 2);
}

TEST_F(ConditioningSourceTest, AMissingContentOfACallCostsTheOthersNothing) {
  std::vector<v1::Lease> leases;
  std::vector<weights::Chunk> kept;
  for (int i = 0; i < 8; ++i) {
    leases.push_back(LeaseOf(std::string(100 + i, static_cast<char>('a' + i))));
    kept.push_back(served_);
  }
  served_.reset();
  kept[5].reset();
  std::vector<absl::StatusOr<weights::Chunk>> fetched(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { fetched[i] = source_.Fetch(leases[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) {
    if (i == 5) {
      EXPECT_EQ(fetched[i].status().code(), absl::StatusCode::kNotFound);
    } else {
      ASSERT_TRUE(fetched[i].ok()) << i << ": " << fetched[i].status();
      EXPECT_EQ(**fetched[i], *kept[i]);
    }
  }
}

// Small chunks that were found before one that is gone are sent, and count as served.
TEST_F(ConditioningSourceTest, WhatComesBeforeAMissingContentIsSent) {
  const v1::Lease here = LeaseOf("here");
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(server_->endpoint()));
  v1::FetchRequest request;
  request.set_epoch(kEpoch.value);
  request.add_chunk_sha256(here.conditioning_sha256());
  request.add_chunk_sha256(Sha256("gone"));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  const auto reader = stub->Fetch(context.get(), request);
  v1::FetchResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.data(), "here");
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

std::vector<ConditioningSource::Content> ContentsOf(const std::vector<weights::Chunk>& chunks) {
  std::vector<ConditioningSource::Content> contents;
  for (const weights::Chunk& chunk : chunks) {
    contents.push_back({.sha256 = Sha256(*chunk), .bytes = chunk->size(), .xxh3 = ""});
  }
  return contents;
}

std::vector<weights::Chunk> ChunksOf(int count) {
  std::vector<weights::Chunk> chunks;
  for (int i = 0; i < count; ++i) {
    std::string bytes = std::to_string(i);
    bytes.resize(100, '.');
    chunks.push_back(std::make_shared<const std::string>(std::move(bytes)));
  }
  return chunks;
}

// A peer that fetches the same lacks a part of it only until its own next call.
// Promise: Any process draws an evaluation with the same bytes.
TEST_F(ConditioningSourceTest, APeerThatLacksAPartIsAskedAgainForWhatComesLater) {
  const std::vector<weights::Chunk> chunks = ChunksOf(3 * 512);
  const std::vector<ConditioningSource::Content> contents = ContentsOf(chunks);
  v1::Lease lease;
  const auto peer = Peer(lease, "");
  const auto with_none = Peer(lease, "");
  for (size_t i = 0; i < chunks.size(); ++i) {
    learner_has_.Put(contents[i].sha256, chunks[i]);
    if (i < 700 || i >= 1024) peer->content().Put(contents[i].sha256, chunks[i]);
  }
  const auto got = source_.GetAll(contents, lease.conditioning_peers());
  ASSERT_TRUE(got.ok()) << got.status();
  for (const weights::Chunk& chunk : chunks) ASSERT_EQ(*got->at(Sha256(*chunk)), *chunk);
  EXPECT_EQ(Bytes("peer"), 100 * (700 + 512));
  EXPECT_EQ(Bytes("learner"), 100 * (1024 - 700));
  EXPECT_EQ(channel_.calls(), 1) << "of the learner, for the call in which something lacked";
}

// Sends the first `sent` of the chunks that a call asks for, and breaks off.
class BreakingChannel final : public v1::WeightChannel::Service {
 public:
  BreakingChannel(const std::vector<weights::Chunk>& chunks, int sent) : sent_(sent) {
    for (const weights::Chunk& chunk : chunks) chunks_[Sha256(*chunk)] = chunk;
  }
  int calls() const { return calls_; }

 private:
  grpc::Status Fetch(grpc::ServerContext*, const v1::FetchRequest* request,
                     grpc::ServerWriter<v1::FetchResponse>* writer) override {
    ++calls_;
    for (int i = 0; i < std::min(sent_, request->chunk_sha256_size()); ++i) {
      v1::FetchResponse piece;
      piece.set_chunk_sha256(request->chunk_sha256(i));
      piece.set_data(*chunks_.at(request->chunk_sha256(i)));
      writer->Write(piece);
    }
    if (request->chunk_sha256_size() <= sent_) return grpc::Status::OK;
    return {grpc::StatusCode::UNAVAILABLE, "broken off"};
  }

  const int sent_;
  std::map<std::string, weights::Chunk> chunks_;
  std::atomic<int> calls_ = 0;
};

// Promise: Any process draws an evaluation with the same bytes.
TEST_F(ConditioningSourceTest, ALearnerThatBringsSomethingInEachCallIsNotGivenUp) {
  const std::vector<weights::Chunk> chunks = ChunksOf(9);
  for (const auto& [sent, calls] : {std::pair(1, 9), std::pair(0, 3)}) {
    BreakingChannel learner(chunks, sent);
    const auto server = *rpc::Server::Start({}, {&learner});
    weights::ContentStore held(1 << 20);
    ConditioningSource source({.learner = server->endpoint(),
                               .epoch = kEpoch,
                               .worker_id = "w",
                               .tries = 3,
                               .backoff_first = absl::Milliseconds(1),
                               .backoff_max = absl::Milliseconds(1)},
                              held, metrics_, follow_metrics_, Clock::Steady());
    const auto got = source.GetAll(ContentsOf(chunks), {});
    EXPECT_EQ(got.ok(), sent == 1) << got.status();
    EXPECT_EQ(learner.calls(), calls);
  }
}

TEST_F(ConditioningSourceTest, AfterCancelNothingIsFetched) {
  const v1::Lease lease = LeaseOf("late");
  source_.Cancel();
  EXPECT_EQ(source_.Fetch(lease).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace oxbow::rollout
