// SPDX-License-Identifier: Apache-2.0
// Followers that relay, over real gRPC on port 0, among peers that are slow, dead or wrong.
#include "services/weights/weight_relay.h"

#include <gmock/gmock.h>
#include <grpcpp/support/method_handler.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/sha256.h"
#include "rpc/channel.h"
#include "services/weights/fetch_piece.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weight_follower.h"
#include "telemetry/metrics.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::weights {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(20);
constexpr Epoch kEpoch{7};
constexpr uint64_t kChunk = 1024;

// 16 chunks of noise that nothing else shares, and 16 that every version shares.
Snapshot Version(uint64_t version) {
  std::mt19937_64 random(version);
  std::string base(16 * kChunk, 'b');
  for (size_t i = 0; i < base.size(); i += kChunk) base[i] = static_cast<char>(i / kChunk);
  std::string adapter(16 * kChunk, '\0');
  for (char& byte : adapter) byte = static_cast<char>(random());
  const auto bytes = [](std::string data) {
    const auto size = static_cast<int64_t>(data.size());
    return io::TensorBytes{io::DType::kU8, {size}, std::move(data)};
  };
  return MakeSnapshot({kEpoch, PolicyVersion(version), LearnerStep(version)},
                      {{"base", bytes(std::move(base))}}, {{"adapter", bytes(std::move(adapter))}},
                      kChunk);
}

bool SameChunks(const ChunksByHash& a, const ChunksByHash& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && *x.second == *y.second;
  });
}

// A worker: relay, follower, and what it was handed.
class Worker {
 public:
  Worker(const std::string& id, const std::string& learner,
         absl::Duration peer_silence = absl::Seconds(5), bool relays = true) {
    if (relays) {
      auto relay = WeightRelay::Start({.sign_of_life = absl::Milliseconds(20)}, metrics_);
      EXPECT_TRUE(relay.ok()) << relay.status();
      relay_ = *std::move(relay);
    }
    follower_ = std::make_unique<WeightFollower>(
        WeightFollower::Options{.endpoints = {learner},
                                .epoch = kEpoch,
                                .worker_id = id,
                                .peer_silence = peer_silence,
                                .tries = 3,
                                .backoff_first = absl::Milliseconds(1),
                                .backoff_max = absl::Milliseconds(5),
                                .relay = relay_.get()},
        metrics_, Clock::Steady(), [this] {
          absl::MutexLock lock(&mutex_);
          ++ready_;
        });
  }
  ~Worker() { follower_.reset(); }

  // Waits for exactly this version and reports it.
  VerifiedSnapshot Await(uint64_t version) {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        const auto ready = [this] { return ready_ > taken_; };
        if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), kDeadline)) {
          ADD_FAILURE() << "version " << version << " did not come";
          return {};
        }
        taken_ = ready_;
      }
      auto snapshot = follower_->TakeNewest();
      if (!snapshot || snapshot->manifest.policy_version() != version) continue;
      EXPECT_TRUE(SameChunks(snapshot->chunks, Version(version).chunks));
      v1::ReportAppliedRequest report;
      report.set_policy_version(version);
      EXPECT_TRUE(follower_->Report(report).ok());
      return *std::move(snapshot);
    }
  }

  std::string Scrape() const { return telemetry::ScrapeText(registry_); }
  WeightRelay& relay() { return *relay_; }
  WeightFollower& follower() { return *follower_; }

 private:
  prometheus::Registry registry_;
  FollowMetrics metrics_{registry_};
  std::unique_ptr<WeightRelay> relay_;
  absl::Mutex mutex_;
  int ready_ = 0;
  int taken_ = 0;
  std::unique_ptr<WeightFollower> follower_;
};

// A peer that joins as a relay and then answers Fetch as the test says.
class FakePeer final : public v1::WeightChannel::Service {
 public:
  using Answer = std::function<absl::Status(const v1::FetchRequest&, FetchStream&)>;
  FakePeer(const std::string& id, const std::string& learner, Answer answer)
      : answer_(std::move(answer)) {
    MarkMethodStreamed(kFetchMethod, nullptr);
    MarkMethodCallback(kFetchMethod,
                       rpc::StreamHandler<v1::FetchRequest, FetchPiece>(
                           runner_, [this](FetchStream& stream) { return Fetch(stream); }));
    auto server = rpc::Server::Start({}, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    v1::WatchRequest request;
    request.set_worker_id(id);
    request.set_relay_endpoint(server_->endpoint());
    context_ = rpc::ContextWithDeadline(absl::Minutes(1));
    watch_ = v1::WeightChannel::NewStub(rpc::Connect(learner))->Watch(context_.get(), request);
    v1::WatchResponse first;  // The learner knows this peer once it has answered.
    EXPECT_TRUE(watch_->Read(&first));
  }
  ~FakePeer() override {
    context_->TryCancel();
    watch_->Finish();
  }

  std::atomic<int> asked = 0;

 private:
  rpc::Handler Fetch(FetchStream& stream) {
    v1::FetchRequest request;
    co_await stream.Read(request);
    ++asked;
    co_return answer_(request, stream);
  }

  const Answer answer_;
  rpc::StreamRunner runner_{{}};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> watch_;
};

// Counts the faults it was told of.
class CountingService final : public WeightChannelService {
 public:
  using WeightChannelService::WeightChannelService;

  grpc::Status ReportPeer(grpc::ServerContext* context, const v1::ReportPeerRequest* request,
                          v1::ReportPeerResponse* response) override {
    grpc::Status status = WeightChannelService::ReportPeer(context, request, response);
    absl::MutexLock lock(&mutex_);
    ++faults_;
    return status;
  }
  // Weights are handed out before the faults of their sources are reported.
  bool AwaitFaults(int count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] { return faults_ >= count; };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), kDeadline);
  }

 private:
  absl::Mutex mutex_;
  int faults_ = 0;
};

class WeightRelayTest : public ::testing::Test {
 protected:
  WeightRelayTest() {
    auto server = rpc::Server::Start({}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~WeightRelayTest() override { service_.Stop(); }

  const std::string& learner() { return server_->endpoint(); }
  std::string Scrape() const { return telemetry::ScrapeText(registry_); }

  prometheus::Registry registry_;
  PublishMetrics metrics_{registry_};
  CountingService service_{{.epoch = kEpoch}, metrics_, Clock::Steady(), nullptr};
  std::unique_ptr<rpc::Server> server_;
};

// Promise: No slow worker delays new weights.
TEST_F(WeightRelayTest, LearnerSendsFanoutCopiesToSevenWorkers) {
  std::vector<std::unique_ptr<Worker>> workers;
  ASSERT_TRUE(service_.Publish(Version(1)).ok());
  for (int i = 0; i < 7; ++i) {
    workers.push_back(std::make_unique<Worker>("w" + std::to_string(i), learner()));
    EXPECT_EQ(workers.back()->Await(1).fetched_bytes, 32 * kChunk);
  }
  for (uint64_t version = 2; version <= 4; ++version) {
    ASSERT_TRUE(service_.Publish(Version(version)).ok());
    for (auto& worker : workers) EXPECT_EQ(worker->Await(version).fetched_bytes, 16 * kChunk);
    EXPECT_THAT(Scrape(), HasSubstr("oxbow_weights_egress_copies 2\n"));
  }
  EXPECT_THAT(workers[6]->Scrape(),
              HasSubstr("oxbow_weights_fetched_bytes_total{source=\"learner\"} 0\n"));
}

TEST_F(WeightRelayTest, ChildThatHearsFirstIsServedAsTheChunksCome) {
  Worker parent("parent", learner());
  const Snapshot snapshot = Version(1);
  // A call that comes before the parent has heard of anything.
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(parent.relay().endpoint()));
  v1::FetchRequest request;
  for (const ChunkSize& chunk : ChunksOf(snapshot.manifest)) {
    request.add_chunk_sha256(chunk.sha256);
  }
  const auto context = rpc::ContextWithDeadline(kDeadline);
  const auto reader = stub->Fetch(context.get(), request);
  v1::FetchResponse piece;
  ASSERT_TRUE(reader->Read(&piece));
  EXPECT_EQ(piece.ByteSizeLong(), 0u);  // A sign of life.
  ASSERT_TRUE(service_.Publish(snapshot).ok());
  int chunks = 0;
  while (reader->Read(&piece)) {
    for (const auto& small : piece.small()) {
      EXPECT_EQ(Sha256(small.data()), request.chunk_sha256(chunks++));
    }
    if (piece.data().empty()) continue;
    EXPECT_EQ(piece.chunk_sha256(), request.chunk_sha256(chunks++));
    EXPECT_EQ(Sha256(piece.data()), piece.chunk_sha256());
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(chunks, request.chunk_sha256_size());
}

// Promise: Weights are verified. No worker samples with weights whose manifest hash, chunk hashes
// or probe did not match, whatever their source. Chunks are checked by SHA-256 under TLS, which
// finds forged ones, and by checksum in plaintext, which finds damaged ones. A worker that passes
// on wrong bytes is left for another source, is reported, and is never a source again.
TEST_F(WeightRelayTest, CorruptPeerIsReportedAndNoLongerUsed) {
  ASSERT_TRUE(service_.Publish(Version(1)).ok());
  const auto corrupt = [](const v1::FetchRequest& request, FetchStream& stream) {
    const auto wrong = std::make_shared<const std::string>(kChunk, 'x');
    for (const std::string& hash : request.chunk_sha256()) {
      stream.Send(FetchPiece{hash, 0, wrong, kChunk});
    }
    return absl::OkStatus();
  };
  FakePeer liar("liar", learner(), corrupt);
  Worker honest("honest", learner());
  honest.Await(1);
  Worker child("child", learner());
  child.Await(1);  // Whatever the liar said, what is handed out is right.
  ASSERT_TRUE(service_.AwaitFaults(1));
  EXPECT_EQ(liar.asked, 1);
  EXPECT_THAT(child.Scrape(), HasSubstr("how=\"corrupt\"} 1\n"));
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  child.Await(2);
  honest.Await(2);
  Worker late("late", learner());
  late.Await(2);
  EXPECT_EQ(liar.asked, 1);
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_weights_peer_faults_total{fault=\"corrupt\"} 1\n"));
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_weights_peers_excluded 1\n"));
}

// Promise: No slow worker delays new weights.
TEST_F(WeightRelayTest, SilentAndDeadPeersDelayNobodyForLong) {
  ASSERT_TRUE(service_.Publish(Version(1)).ok());
  absl::Notification over;
  const auto silent = [&over](const v1::FetchRequest&, FetchStream&) {
    over.WaitForNotificationWithTimeout(kDeadline);
    return absl::CancelledError();
  };
  const auto dead = [](const v1::FetchRequest&, FetchStream&) {
    return absl::UnavailableError("reset");
  };
  FakePeer stopped("stopped", learner(), silent);
  FakePeer broken("broken", learner(), dead);
  Worker child("child", learner(), /*peer_silence=*/absl::Milliseconds(50));
  EXPECT_EQ(child.Await(1).fetched_bytes, 32 * kChunk);
  ASSERT_TRUE(service_.AwaitFaults(2));
  EXPECT_EQ(stopped.asked, 1);
  EXPECT_EQ(broken.asked, 1);
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  child.Await(2);
  EXPECT_EQ(stopped.asked, 1);  // Not asked again until it is heard of.
  EXPECT_EQ(broken.asked, 1);
  over.Notify();
}

// Promise: No slow worker delays new weights.
TEST_F(WeightRelayTest, AWatcherThatNeverReadsHoldsUpNobody) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(learner()));
  const auto context = rpc::ContextWithDeadline(kDeadline);
  v1::WatchRequest request;
  request.set_worker_id("sleeper");
  const auto watch = stub->Watch(context.get(), request);
  Worker worker("worker", learner());
  for (uint64_t version = 1; version <= 5; ++version) {
    ASSERT_TRUE(service_.Publish(Version(version)).ok());
    worker.Await(version);
  }
  context->TryCancel();
  watch->Finish();
}

// Far more than the server has threads.
TEST_F(WeightRelayTest, HundredsOfWatchersAreToldAndForgotten) {
  constexpr size_t kWatchers = 300;
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(learner()));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchResponse>>> watches;
  for (size_t i = 0; i < kWatchers; ++i) {
    v1::WatchRequest request;
    request.set_worker_id("w" + std::to_string(i));
    request.set_relay_endpoint("127.0.0.1:1");
    contexts.push_back(rpc::ContextWithDeadline(kDeadline));
    watches.push_back(stub->Watch(contexts.back().get(), request));
  }
  for (uint64_t version = 1; version <= 2; ++version) {
    ASSERT_TRUE(service_.Publish(Version(version)).ok());
    for (auto& watch : watches) {
      v1::WatchResponse told;
      do {
        ASSERT_TRUE(watch->Read(&told));
      } while (std::max(told.manifest().policy_version(), told.delta().changed().policy_version()) <
               version);
    }
  }
  service_.Stop();
  for (auto& watch : watches) {
    v1::WatchResponse told;
    while (watch->Read(&told)) {
    }
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

// The parent dies in the middle: the child goes on with the chunks it has verified.
TEST_F(WeightRelayTest, WhatAPeerGaveIsKeptWhenItDies) {
  ASSERT_TRUE(service_.Publish(Version(1)).ok());
  const Snapshot snapshot = Version(1);
  const auto half = [&](const v1::FetchRequest& request, FetchStream& stream) {
    for (int i = 0; i < 10; ++i) {
      const std::string& hash = request.chunk_sha256(i);
      stream.Send(FetchPiece{hash, 0, snapshot.chunks.at(hash), kChunk});
    }
    // And a part of the eleventh, which another source starts again.
    const std::string& hash = request.chunk_sha256(10);
    stream.Send(FetchPiece{hash, 0, snapshot.chunks.at(hash), kChunk / 2});
    return absl::UnavailableError("killed");
  };
  FakePeer first("first", learner(), half);
  FakePeer second("second", learner(),
                  [](const auto&, auto&) { return absl::NotFoundError("not here"); });
  Worker child("child", learner(), kDeadline, /*relays=*/false);
  EXPECT_EQ(child.Await(1).fetched_bytes, 32 * kChunk + kChunk / 2);
  ASSERT_TRUE(service_.AwaitFaults(1));
  EXPECT_THAT(child.Scrape(), HasSubstr("how=\"lacking\"} 1\n"));
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_weights_peers_excluded 1\n"));  // The second is innocent.
}

// More Fetches than a server has threads, all of them under way: a chunk that has not come, and
// peers that do not read.
// Promise: Open streams stop nobody.
TEST_F(WeightRelayTest, AHundredOpenFetchesHoldUpNobody) {
  ASSERT_TRUE(service_.Publish(Version(1)).ok());
  Worker parent("parent", learner());
  parent.Await(1);
  v1::FetchRequest missing;
  missing.add_chunk_sha256(Sha256("never published"));
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::FetchResponse>>> open;
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(parent.relay().endpoint()));
  for (int i = 0; i < 100; ++i) {
    contexts.push_back(rpc::ContextWithDeadline(kDeadline));
    open.push_back(stub->Fetch(contexts.back().get(), missing));
  }
  v1::FetchResponse piece;
  for (auto& call : open) ASSERT_TRUE(call->Read(&piece)) << "a sign of life";
  Worker child("child", learner());
  child.Await(1);
  ASSERT_TRUE(service_.Publish(Version(2)).ok());
  parent.Await(2);
  child.Await(2);
  for (auto& context : contexts) context->TryCancel();
  for (auto& call : open) (void)call->Finish();
}

// Chunks that a worker has in a file are passed on from there, as long as they are what the learner
// has named.
// Promise: A worker's base is in host memory once.
TEST_F(WeightRelayTest, AFileThatChangesIsNamedAndNotServedAndItsChunksAreFetchedAgain) {
  prometheus::Registry registry;
  PublishMetrics metrics(registry);
  WeightChannelService chain({.epoch = kEpoch, .fanout = 1}, metrics, Clock::Steady(), nullptr);
  const auto server = rpc::Server::Start({}, {&chain}).value();
  const Snapshot snapshot = Version(1);
  ASSERT_TRUE(chain.Publish(snapshot).ok());
  Worker parent("parent", server->endpoint());
  parent.Await(1);
  const oxbow::testing::ScopedDirectory scratch;
  const std::string path = scratch.path() / "base.safetensors";
  const auto write = [&](char flips) {
    std::string bytes = AssembleTensors(snapshot.manifest, snapshot.chunks).at("base").data;
    for (char& byte : bytes) byte ^= flips;
    std::ofstream(path, std::ios::binary) << bytes;
  };
  write(0);
  const auto place = PlaceInFile(OpenedFile::Open(path).value(), 0, 16 * kChunk);
  const v1::TensorManifest& base = snapshot.manifest.tensors(1);
  for (int i = 0; i < 16; ++i) {
    parent.follower().Place(base.chunk_sha256(i), std::make_shared<const PlacedChunk>(PlacedChunk{
                                                      place, static_cast<uint64_t>(i) * kChunk,
                                                      kChunk, base.chunk_xxh3(i)}));
  }
  EXPECT_EQ(parent.relay().store().bytes(), 16 * kChunk) << "the adapter's";
  const std::string from_learner = "oxbow_weights_fetched_bytes_total{source=\"learner\"} ";
  Worker child("child", server->endpoint(), kDeadline, /*relays=*/false);
  child.Await(1);
  EXPECT_THAT(child.Scrape(), HasSubstr(from_learner + "0\n"));

  write(1);
  ::testing::internal::CaptureStderr();
  Worker second("second", server->endpoint(), kDeadline, /*relays=*/false);
  EXPECT_EQ(second.Await(1).fetched_bytes, 32 * kChunk) << "no wrong byte came";
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(path));
  EXPECT_EQ(parent.relay().store().Look(base.chunk_sha256(0)).placed, nullptr);
  EXPECT_NE(parent.relay().store().Look(base.chunk_sha256(9)).placed, nullptr) << "not asked for";
  parent.follower().FetchAgain();
  EXPECT_EQ(parent.Await(1).fetched_bytes, 16 * kChunk);
  EXPECT_EQ(parent.relay().store().bytes(), 32 * kChunk);
  chain.Stop();
}

TEST_F(WeightRelayTest, FanoutZeroMakesEveryoneAskTheLearner) {
  prometheus::Registry registry;
  PublishMetrics metrics(registry);
  WeightChannelService star({.epoch = kEpoch, .fanout = 0}, metrics, Clock::Steady(), nullptr);
  const auto server = rpc::Server::Start({}, {&star});
  ASSERT_TRUE(server.ok());
  ASSERT_TRUE(star.Publish(Version(1)).ok());
  for (int i = 0; i < 4; ++i) {
    Worker worker("w" + std::to_string(i), (*server)->endpoint());
    worker.Await(1);
  }
  EXPECT_THAT(telemetry::ScrapeText(registry), HasSubstr("oxbow_weights_egress_copies 4\n"));
  star.Stop();
}

}  // namespace
}  // namespace oxbow::weights
