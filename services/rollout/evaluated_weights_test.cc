// SPDX-License-Identifier: Apache-2.0
// The weights of an evaluation are the learner's, byte for byte, and only what this worker has not
// crosses the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "base/sha256.h"
#include "rpc/server.h"
#include "services/rollout/conditioning_source.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "telemetry/metrics.h"

namespace oxbow::rollout {
namespace {

// Counts the calls that ask it for bytes.
class CountingChannel final : public weights::WeightChannelService {
 public:
  using WeightChannelService::WeightChannelService;
  int fetches() const { return fetches_; }

 private:
  absl::Status Prepare(v1::FetchRequest&, weights::FetchStream&) override {
    ++fetches_;
    return absl::OkStatus();
  }
  std::atomic<int> fetches_ = 0;
};

// Promise: Any process draws an evaluation with the same bytes.
class EvaluatedWeightsTest : public ::testing::Test {
 protected:
  EvaluatedWeightsTest()
      : channel_({.epoch = Epoch(3), .content = &learner_has_}, publish_metrics_, Clock::Steady(),
                 nullptr),
        server_(*rpc::Server::Start({}, {&channel_})),
        source_({.learner = server_->endpoint(),
                 .epoch = Epoch(3),
                 .worker_id = "w",
                 .tries = 1,
                 .backoff_first = absl::Milliseconds(1)},
                held_, metrics_, follow_metrics_, Clock::Steady()),
        weights_(source_, [this](const std::string& sha256) {
          const auto found = in_use_.find(sha256);
          return found == in_use_.end() ? nullptr : found->second;
        }) {}

  // A tensor of three chunks, of which the middle one is of `value`.
  static weights::Snapshot SnapshotOf(char value) {
    const uint64_t chunk = 4096;
    const std::string bytes =
        std::string(chunk, 'a') + std::string(chunk, value) + std::string(chunk, 'c');
    return weights::MakeSnapshot(
        {Epoch(3), PolicyVersion(1), LearnerStep(1)}, {},
        {{"w", {.dtype = io::DType::kU8, .shape = {3 * 4096}, .data = bytes}}}, chunk);
  }

  // Pictures of these weights, which the learner serves while `served_` has them.
  v1::Lease::Pictures PicturesOf(const weights::Snapshot& snapshot) {
    const auto serve = [this](const std::string& hash, weights::Chunk bytes) {
      served_[hash] = learner_has_.Put(hash, std::move(bytes));
    };
    for (const auto& [hash, chunk] : snapshot.chunks) serve(hash, chunk);
    const auto manifest =
        std::make_shared<const std::string>(snapshot.manifest.SerializeAsString());
    serve(Sha256(*manifest), manifest);
    v1::Lease::Pictures pictures;
    pictures.mutable_weights()->set_sha256(Sha256(*manifest));
    pictures.mutable_weights()->set_bytes(manifest->size());
    return pictures;
  }

  double FromLearner() const {
    const std::string line = "oxbow_rollout_conditioning_bytes_total{source=\"learner\"} ";
    const std::string text = telemetry::ScrapeText(registry_);
    return std::stod(text.substr(text.find(line) + line.size()));
  }

  prometheus::Registry registry_;
  RolloutMetrics metrics_{registry_};
  weights::PublishMetrics publish_metrics_{registry_};
  weights::FollowMetrics follow_metrics_{registry_};
  weights::ContentStore learner_has_{/*bytes_max=*/0};
  weights::ChunksByHash served_;
  CountingChannel channel_;
  std::unique_ptr<rpc::Server> server_;
  weights::ContentStore held_{/*bytes_max=*/0};
  ConditioningSource source_;
  weights::ChunksByHash in_use_;
  EvaluatedWeights weights_;
};

TEST_F(EvaluatedWeightsTest, WhatIsInUseIsNeitherFetchedNorCopied) {
  const weights::Snapshot in_use = SnapshotOf('b');
  in_use_ = in_use.chunks;
  const weights::Snapshot average = SnapshotOf('x');
  const v1::Lease::Pictures pictures = PicturesOf(average);
  const auto got = weights_.Get(pictures);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)->manifest.SerializeAsString(), average.manifest.SerializeAsString());
  ASSERT_EQ((*got)->chunks.size(), 3u);
  for (const auto& [hash, chunk] : (*got)->chunks) {
    EXPECT_EQ(Sha256(*chunk), hash);
    const auto same = in_use_.find(hash);
    EXPECT_TRUE(same == in_use_.end() || chunk == same->second) << "a copy";
  }
  EXPECT_EQ(FromLearner(), 4096 + static_cast<double>(pictures.weights().bytes()))
      << "one chunk and the manifest";
}

TEST_F(EvaluatedWeightsTest, AreFetchedOncePerEvaluationAndLetGoOf) {
  const v1::Lease::Pictures first = PicturesOf(SnapshotOf('x'));
  auto got = weights_.Get(first);
  ASSERT_TRUE(got.ok()) << got.status();
  const double before = FromLearner();
  EXPECT_EQ(*weights_.Get(first), *got) << "the next lease has the same";
  EXPECT_EQ(FromLearner(), before);
  const std::weak_ptr<const weights::VerifiedSnapshot> old = *got;
  got->reset();
  EXPECT_FALSE(old.expired());
  ASSERT_TRUE(weights_.Get(PicturesOf(SnapshotOf('y'))).ok());
  EXPECT_TRUE(old.expired()) << "those of the evaluation before";
  weights_.Applied();
  weights_.Applied();
  EXPECT_EQ(held_.Find(first.weights().sha256()), nullptr);
}

// Training goes on for one step while an evaluation is drawn.
TEST_F(EvaluatedWeightsTest, OutliveNewWeightsAsLongAsLeasesNameThem) {
  const v1::Lease::Pictures pictures = PicturesOf(SnapshotOf('x'));
  std::weak_ptr<const weights::VerifiedSnapshot> got = *weights_.Get(pictures);
  const double before = FromLearner();
  for (int i = 0; i < 3; ++i) {
    weights_.Applied();
    ASSERT_TRUE(weights_.Get(pictures).ok());
  }
  EXPECT_EQ(FromLearner(), before) << "not fetched again";
  weights_.Applied();
  EXPECT_FALSE(got.expired());
  weights_.Applied();
  EXPECT_TRUE(got.expired()) << "the evaluation is over";
}

// A large network has thousands of chunks.
TEST_F(EvaluatedWeightsTest, ChunksComeManyInACall) {
  std::string bytes;
  for (int i = 0; i < 1200; ++i) bytes += std::string(4096, static_cast<char>('a' + i % 26)) + "!";
  const weights::Snapshot snapshot = weights::MakeSnapshot(
      {Epoch(3), PolicyVersion(1), LearnerStep(1)}, {},
      {{"w",
        {.dtype = io::DType::kU8, .shape = {static_cast<int64_t>(bytes.size())}, .data = bytes}}},
      4096);
  ASSERT_GT(snapshot.chunks.size(), 1000u);
  const auto got = weights_.Get(PicturesOf(snapshot));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)->chunks.size(), snapshot.chunks.size());
  for (const auto& [hash, chunk] : (*got)->chunks) EXPECT_EQ(*chunk, *snapshot.chunks.at(hash));
  EXPECT_LE(channel_.fetches(), 4) << "one for the manifest, three of at most 512 chunks";
}

TEST_F(EvaluatedWeightsTest, WhatTheLearnerServesNoMoreIsAnError) {
  const v1::Lease::Pictures pictures = PicturesOf(SnapshotOf('x'));
  served_.clear();
  EXPECT_EQ(weights_.Get(pictures).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow::rollout
