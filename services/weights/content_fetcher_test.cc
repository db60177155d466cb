// SPDX-License-Identifier: Apache-2.0
// One law: whatever the peers do, a download ends with the right bytes or with an error, and the
// faults that are reported are those that were made.
#include "services/weights/content_fetcher.h"

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

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/sha256.h"
#include "rpc/server.h"
#include "services/weights/fetch_piece.h"

namespace oxbow::weights {
namespace {

constexpr int kContents = 5;
constexpr absl::Duration kSilence = absl::Seconds(2);

ChunksByHash Contents() {
  ChunksByHash contents;
  for (int i = 0; i < kContents; ++i) {
    auto bytes = std::make_shared<const std::string>(100 + i, static_cast<char>('a' + i));
    contents.emplace(Sha256(*bytes), bytes);
  }
  return contents;
}

// How a source fails at the second content of a call, or at the only one. One that breaks off gives
// the rest when it is asked again.
enum class Does { kGives, kLacks, kForges, kShortens, kBreaks, kFallsSilent };

class FakeSource final : public v1::WeightChannel::Service {
 public:
  explicit FakeSource(Does does) : does_(does) {
    MarkMethodStreamed(kFetchMethod, nullptr);
    MarkMethodCallback(kFetchMethod,
                       rpc::StreamHandler<v1::FetchRequest, FetchPiece>(
                           runner_, [this](FetchStream& stream) { return Fetch(stream); }));
    server_ = rpc::Server::Start({}, {this}).value();
  }
  const std::string& endpoint() const { return server_->endpoint(); }
  absl::Notification asked;

 private:
  rpc::Handler Fetch(FetchStream& stream) {
    v1::FetchRequest request;
    if (!co_await stream.Read(request)) co_return absl::CancelledError("gone");
    if (does_ == Does::kFallsSilent && !told_.exchange(true)) asked.Notify();
    for (int i = 0; i < request.chunk_sha256_size(); ++i) {
      const std::string& hash = request.chunk_sha256(i);
      const Chunk right = contents_.at(hash);
      const uint64_t offset = i == 0 ? request.first_offset() : 0;
      FetchPiece piece{.sha256 = hash, .offset = offset, .chunk = right, .small = {}};
      piece.bytes = right->size() - offset;
      const bool here = offset == 0 && i == std::min(1, request.chunk_sha256_size() - 1);
      if (here && does_ == Does::kLacks) co_return absl::NotFoundError("not here");
      if (here && does_ == Does::kForges) {
        piece.chunk = std::make_shared<const std::string>(right->size(), 'x');
      }
      const bool half = here && (does_ == Does::kBreaks || does_ == Does::kShortens);
      if (half) piece.bytes /= 2;
      if (here && does_ == Does::kFallsSilent) {
        while (!stream.cancelled()) co_await stream.Wait(absl::Milliseconds(10));
        co_return absl::CancelledError("gone");
      }
      if (!co_await stream.Write(std::move(piece))) co_return absl::CancelledError("gone");
      if (half && does_ == Does::kBreaks) co_return absl::UnavailableError("killed");
      if (half) co_return absl::OkStatus();
    }
    co_return absl::OkStatus();
  }

  const Does does_;
  const ChunksByHash contents_ = Contents();
  std::atomic<bool> told_ = false;
  rpc::StreamRunner runner_{{}};
  std::unique_ptr<rpc::Server> server_;
};

class ContentFetcherTest : public ::testing::Test {
 protected:
  ContentFetcherTest() {
    for (const Does does : {Does::kGives, Does::kLacks, Does::kForges, Does::kShortens,
                            Does::kBreaks, Does::kFallsSilent}) {
      sources_.emplace(does, std::make_unique<FakeSource>(does));
    }
  }
  const std::string& At(Does does) const { return sources_.at(does)->endpoint(); }

  // Sequences of up to two of the peers.
  static std::vector<std::vector<Does>> Peers(std::vector<Does> kinds) {
    std::vector<std::vector<Does>> sequences = {{}};
    for (const Does first : kinds) {
      sequences.push_back({first});
      for (const Does second : kinds) sequences.push_back({first, second});
    }
    return sequences;
  }

  static v1::PeerFault FaultOf(Does does) {
    if (does == Does::kFallsSilent) return v1::PEER_FAULT_STALLED;
    return does == Does::kBreaks ? v1::PEER_FAULT_UNREACHABLE : v1::PEER_FAULT_CORRUPT;
  }

  static Download Wanted(ContentStore& store) {
    std::vector<ChunkSize> contents;
    for (const auto& [hash, bytes] : Contents()) contents.push_back({hash, bytes->size(), ""});
    return Download::Of(contents, store);
  }

  // Fetches from these peers and this learner; `ends` is the end of it where no peer gives all.
  void Fetch(const std::vector<Does>& peers, Does learner, absl::StatusCode ends) {
    std::vector<Peer> asked;
    std::vector<v1::PeerFault> expected;
    bool whole = false;
    for (const Does does : peers) {
      asked.emplace_back().set_endpoint(At(does));
      whole = whole || does == Does::kGives;
      if (!whole && does != Does::kLacks) expected.push_back(FaultOf(does));
    }
    ContentStore store(/*bytes_max=*/1 << 20);
    Download download = Wanted(store);
    PeerFaults faults;
    const absl::Status status = fetcher_.Fetch(download, asked, At(learner), faults);
    EXPECT_EQ(status.code(), whole ? absl::StatusCode::kOk : ends) << status;
    EXPECT_EQ(download.complete(), status.ok());
    for (const auto& [hash, bytes] : download.verified()) {
      EXPECT_EQ(Sha256(*bytes), hash);
      EXPECT_EQ(store.Find(hash), bytes);
    }
    std::vector<v1::PeerFault> made;
    for (const v1::ReportPeerRequest& fault : faults) made.push_back(fault.fault());
    EXPECT_EQ(made, expected);
  }

  // All sequences by one fetcher, those of silent peers at the same time.
  void FetchAll(const std::vector<Does>& kinds, Does learner, absl::StatusCode ends) {
    SCOPED_TRACE(static_cast<int>(learner));
    std::vector<std::thread> threads;
    for (const std::vector<Does>& peers : Peers(kinds)) {
      if (std::find(peers.begin(), peers.end(), Does::kFallsSilent) == peers.end()) {
        Fetch(peers, learner, ends);
      } else {
        threads.emplace_back([=, this] { Fetch(peers, learner, ends); });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  prometheus::Registry registry_;
  FollowMetrics metrics_{registry_};
  std::map<Does, std::unique_ptr<FakeSource>> sources_;
  std::atomic<uint64_t> received_ = 0;
  ContentFetcher fetcher_{{.epoch = Epoch(1),
                           .worker_id = "w",
                           .peer_silence = kSilence,
                           .tries = 3,
                           .backoff_first = absl::Milliseconds(1),
                           .backoff_max = absl::Milliseconds(1),
                           .received = [this](uint64_t bytes, Source) { received_ += bytes; }},
                          metrics_,
                          Clock::Steady()};
};

// Promise: Weights are verified.
// Promise: Conditioning is what the learner made.
TEST_F(ContentFetcherTest, WhateverPeersDoTheBytesComeFromALearnerAlsoOneThatStartsAgain) {
  const std::vector<Does> all = {Does::kGives,    Does::kLacks,  Does::kForges,
                                 Does::kShortens, Does::kBreaks, Does::kFallsSilent};
  FetchAll(all, Does::kGives, absl::StatusCode::kOk);
  FetchAll({Does::kLacks, Does::kForges, Does::kBreaks}, Does::kBreaks, absl::StatusCode::kOk);
}

TEST_F(ContentFetcherTest, NothingWrongIsTakenWhereTheLearnerFails) {
  const std::vector<Does> peers = {Does::kGives, Does::kLacks, Does::kForges, Does::kShortens};
  FetchAll(peers, Does::kLacks, absl::StatusCode::kNotFound);
  FetchAll(peers, Does::kForges, absl::StatusCode::kDataLoss);
}

// A content that only comes forged costs the others nothing, and each byte counts that came.
TEST_F(ContentFetcherTest, AllButTheForgedContentAreKept) {
  ContentStore store(/*bytes_max=*/0);
  Download download = Wanted(store);
  PeerFaults none;
  EXPECT_FALSE(fetcher_.Fetch(download, {}, At(Does::kForges), none).ok());
  EXPECT_EQ(download.lacking(), 1u);
  EXPECT_EQ(received_, download.bytes());
}

TEST_F(ContentFetcherTest, CancelEndsACallToASourceThatIsSilent) {
  ContentStore store(/*bytes_max=*/0);
  Download download = Wanted(store);
  PeerFaults none;
  absl::Status ended;
  std::thread thread([&] { ended = fetcher_.Fetch(download, {}, At(Does::kFallsSilent), none); });
  sources_.at(Does::kFallsSilent)->asked.WaitForNotification();
  fetcher_.Cancel();
  thread.join();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  EXPECT_TRUE(absl::IsCancelled(fetcher_.Fetch(download, {}, At(Does::kGives), none)));
}

}  // namespace
}  // namespace oxbow::weights
