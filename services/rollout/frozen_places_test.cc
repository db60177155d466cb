// SPDX-License-Identifier: Apache-2.0
// A worker's frozen weights are in host memory once, and other workers get them from there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/checksum.h"
#include "base/sha256.h"
#include "io/tensor_torch.h"
#include "rpc/server.h"
#include "services/rollout/sampler_model.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "telemetry/metrics.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::rollout {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kChunk = 100;
constexpr absl::Duration kDeadline = absl::Seconds(20);

RunSpec SpecOf(model::Trained trained, at::ScalarType compute, model::BaseWeights base) {
  RunSpec spec;
  spec.architecture = TinyArchitecture();
  spec.latent_shape = kTinyLatent;
  spec.trained = trained;
  spec.lora = {.rank = 2, .alpha = 4, .targets = {"attn.to_q", "ff.net.2"}};
  spec.compute = compute;
  spec.base_weights = base;
  return spec;
}

// The snapshot that a learner publishes: one frozen part, and the trained one of `version`.
weights::Snapshot Published(const RunSpec& spec, uint64_t version) {
  const auto full = TinyPolicy(3);
  model::NamedTensors all = full->frozen();
  for (const auto& [name, tensor] : full->parameters().tensors()) all[name] = tensor;
  const auto policy = model::Policy::Create({.architecture = spec.architecture,
                                             .base = all,
                                             .trained = spec.trained,
                                             .lora = spec.lora,
                                             .with_reference = false,
                                             .with_ema = false,
                                             .trainable = false,
                                             .compute = spec.compute,
                                             .base_weights = spec.base_weights})
                          .value();
  policy->parameters().flat().copy_(.1 *
                                    TinyNoise(version, 1, {policy->parameters().flat().numel()}));
  weights::Snapshot snapshot = weights::MakeSnapshot(
      {Epoch(1), PolicyVersion(version), LearnerStep(version)}, io::AllFromTorch(policy->frozen()),
      io::AllFromTorch(policy->parameters().tensors()), kChunk);
  const auto shape = weights::ProbeShapeOf(*spec.architecture, kTinyLatent, {});
  *snapshot.manifest.mutable_probe() = weights::RunProbe(policy->current(), *shape, 17);
  return snapshot;
}

std::set<std::string> ChunksOf(const weights::Snapshot& snapshot, bool trained) {
  std::set<std::string> hashes;
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    const bool adapter = entry.name().find(".lora_") != std::string::npos;
    if (adapter == trained) hashes.insert(entry.chunk_sha256().begin(), entry.chunk_sha256().end());
  }
  return hashes;
}

uint64_t BytesOf(const weights::Snapshot& snapshot, const std::set<std::string>& hashes) {
  uint64_t bytes = 0;
  for (const std::string& hash : hashes) bytes += snapshot.chunks.at(hash)->size();
  return bytes;
}

weights::Placed PlaceOf(const weights::Chunk& chunk) {
  return std::make_shared<const weights::PlacedChunk>(weights::PlacedChunk{
      weights::PlaceInMemory(*chunk, chunk), 0, chunk->size(), Checksum128(*chunk)});
}

// A worker's weights: what follows the learner, passes on and samples.
class Worker {
 public:
  Worker(const std::string& id, const std::string& learner, const RunSpec& spec)
      : spec_(spec), relay_(weights::WeightRelay::Start({}, metrics_).value()) {
    Follow(id, learner);
  }
  ~Worker() { follower_.reset(); }

  // A session with another learner, or the same one again.
  void Follow(const std::string& id, const std::string& learner) {
    model_.reset();
    follower_.reset();
    follower_ = std::make_unique<weights::WeightFollower>(
        weights::WeightFollower::Options{.endpoints = {learner},
                                         .epoch = Epoch(1),
                                         .worker_id = id,
                                         .backoff_first = absl::Milliseconds(1),
                                         .backoff_max = absl::Milliseconds(5),
                                         .relay = relay_.get()},
        metrics_, Clock::Steady(), [this] {
          absl::MutexLock lock(&mutex_);
          ready_ = true;
        });
    model_.emplace(spec_, [this](const std::string& sha256, const weights::Placed& placed) {
      follower_->Place(sha256, placed);
    });
  }

  weights::VerifiedSnapshot Await(uint64_t version) {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        if (!mutex_.AwaitWithTimeout(absl::Condition(&ready_), kDeadline)) {
          ADD_FAILURE() << "version " << version << " did not come";
          return {};
        }
        ready_ = false;
      }
      auto snapshot = follower_->TakeNewest();
      if (snapshot && snapshot->manifest.policy_version() == version) return *std::move(snapshot);
    }
  }
  // Returns how many bytes came over the network.
  uint64_t AwaitAndApply(uint64_t version) {
    weights::VerifiedSnapshot snapshot = Await(version);
    const uint64_t fetched = snapshot.fetched_bytes;
    weights::ProbeComparison comparison;
    const absl::Status applied = model_->Apply(std::move(snapshot), comparison);
    EXPECT_TRUE(applied.ok()) << applied;
    EXPECT_TRUE(comparison.bits_equal);
    v1::ReportAppliedRequest report;
    report.set_policy_version(version);
    EXPECT_TRUE(follower_->Report(report).ok());
    return fetched;
  }

  weights::ChunkStore& store() { return relay_->store(); }
  std::string Scrape() const { return telemetry::ScrapeText(registry_); }

 private:
  const RunSpec spec_;
  prometheus::Registry registry_;
  weights::FollowMetrics metrics_{registry_};
  std::unique_ptr<weights::WeightRelay> relay_;
  absl::Mutex mutex_;
  bool ready_ = false;
  std::unique_ptr<weights::WeightFollower> follower_;
  std::optional<SamplerModel> model_;
};

class FrozenPlacesTest : public ::testing::Test {
 protected:
  FrozenPlacesTest() { server_ = rpc::Server::Start({}, {&service_}).value(); }
  ~FrozenPlacesTest() override { service_.Stop(); }
  const std::string& learner() { return server_->endpoint(); }

  prometheus::Registry registry_;
  weights::PublishMetrics metrics_{registry_};
  weights::WeightChannelService service_{{.epoch = Epoch(1)}, metrics_, Clock::Steady(), nullptr};
  std::unique_ptr<rpc::Server> server_;
};

// In each form that a base has, offloaded and on a CPU.
// Promise: A worker's base is in host memory once. Frozen weights on the CPU of a worker (the base
// of a LoRA with `--offload-weights` in float32, bf16 and int8 among them) are held as the
// network's tensors alone: other workers get each chunk from there, with the SHA-256 that names it,
// also while new weights are applied. Weights that train are never read from the network. With
// `--model DIR` chunks that a file has in the same type take no memory. A file that changes is
// named and not served; its chunks are fetched again. Not covered: a base on a GPU without
// `--model`, or rounded on the way from the files.
TEST_F(FrozenPlacesTest, AWorkersBaseIsHeldOnceAndPeersGetItsBytes) {
  uint64_t version = 0;
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    for (const auto base : {model::BaseWeights::kCompute, model::BaseWeights::kInt8}) {
      for (const bool on_host : {true, false}) {
        SCOPED_TRACE(::testing::Message() << compute << static_cast<int>(base) << on_host);
        RunSpec spec = SpecOf(model::Trained::kLora, compute, base);
        spec.weights_on_host = on_host;
        const weights::Snapshot snapshot = Published(spec, ++version);
        const std::set<std::string> adapter = ChunksOf(snapshot, /*trained=*/true);
        ASSERT_TRUE(service_.Publish(snapshot).ok());
        Worker parent("parent", learner(), spec);
        parent.AwaitAndApply(version);
        EXPECT_EQ(parent.store().bytes(), BytesOf(snapshot, adapter)) << "the adapter alone";
        for (const auto& [hash, chunk] : snapshot.chunks) {
          const auto there = parent.store().Look(hash);
          EXPECT_EQ(there.chunk != nullptr, adapter.contains(hash));
          EXPECT_EQ(there.placed == nullptr, adapter.contains(hash));
          EXPECT_EQ(Sha256(*parent.store().Read(hash).value()), hash);
        }
        Worker child("child", learner(), spec);
        child.Await(version);  // The learner serves two; the third asks the first of them.
        Worker late("late", learner(), spec);
        EXPECT_EQ(late.AwaitAndApply(version),
                  BytesOf(snapshot, ChunksOf(snapshot, false)) + BytesOf(snapshot, adapter));
        EXPECT_THAT(late.Scrape(),
                    HasSubstr("oxbow_weights_fetched_bytes_total{source=\"learner\"} 0\n"));
      }
    }
  }
}

// As a network may keep its weights: rounded, in another type, or none of the snapshot's.
// Promise: A worker's base is in host memory once.
TEST_F(FrozenPlacesTest, OtherBytesThanTheChunksAreNoPlace) {
  const at::Tensor weight = at::linspace(0, 1, 60);
  weights::Snapshot snapshot =
      weights::MakeSnapshot({}, io::AllFromTorch({{"w", weight}}), {}, kChunk);
  const size_t chunks = snapshot.chunks.size();
  weights::VerifiedSnapshot verified{.manifest = snapshot.manifest, .chunks = snapshot.chunks};
  int placed = 0;
  FrozenPlaces places(verified, [&](const std::string&, const weights::Placed&) { ++placed; });
  places.Add("w", weight.to(at::kBFloat16).to(at::kFloat));
  places.Add("w", weight.to(at::kBFloat16));
  places.Add("other", weight);
  EXPECT_EQ(placed, 0);
  EXPECT_EQ(verified.chunks.size(), chunks);
  places.Add("w", weight);
  EXPECT_EQ(placed, 3);
  EXPECT_TRUE(verified.chunks.empty());
  snapshot.chunks.clear();
  EXPECT_EQ(verified.Tensor(verified.manifest.tensors(0))->data, io::FromTorch(weight).data);
}

// New weights are written into the network while others read its base.
// Promise: A worker's base is in host memory once.
TEST_F(FrozenPlacesTest, WhatTrainsIsNeverReadFromTheNetworkNorTornWhileItChanges) {
  for (const model::Trained trained : {model::Trained::kLora, model::Trained::kFull}) {
    for (const bool on_host : {true, false}) {
      RunSpec spec = SpecOf(trained, at::kFloat, model::BaseWeights::kCompute);
      spec.weights_on_host = on_host;
      const weights::Snapshot first = Published(spec, 1);
      ASSERT_TRUE(service_.Publish(first).ok());
      Worker worker("worker", learner(), spec);
      worker.AwaitAndApply(1);
      std::atomic<bool> over = false;
      std::thread reader([&] {
        while (!over) {
          for (const auto& [hash, chunk] : first.chunks) {
            const absl::StatusOr<weights::Chunk> read = worker.store().Read(hash);
            ASSERT_TRUE(read.ok()) << read.status();
            if (*read == nullptr) continue;  // An adapter that is no longer kept.
            ASSERT_EQ(**read, *chunk);
          }
        }
      });
      for (uint64_t version = 2; version <= 9; ++version) {
        const weights::Snapshot next = Published(spec, version);
        ASSERT_TRUE(service_.Publish(next).ok());
        worker.AwaitAndApply(version);
        const std::set<std::string> frozen = ChunksOf(first, /*trained=*/false);
        for (const auto& [hash, chunk] : next.chunks) {
          if (trained == model::Trained::kLora && frozen.contains(hash)) continue;
          const auto there = worker.store().Look(hash);
          if (first.chunks.contains(hash)) continue;  // A buffer of a full fine-tune.
          EXPECT_EQ(there.placed, nullptr) << "what trains";
          EXPECT_NE(there.chunk, nullptr);
        }
      }
      over = true;
      reader.join();
    }
  }
}

// Then its places are in memory of a network that has gone, until the next one is made.
// Promise: A worker's base is in host memory once.
TEST_F(FrozenPlacesTest, ANewSessionReadsTheBaseFromWhereItIs) {
  RunSpec spec = SpecOf(model::Trained::kLora, at::kBFloat16, model::BaseWeights::kCompute);
  spec.weights_on_host = true;
  const weights::Snapshot snapshot = Published(spec, 1);
  ASSERT_TRUE(service_.Publish(snapshot).ok());
  Worker worker("worker", learner(), spec);
  worker.AwaitAndApply(1);
  const std::string hash = *ChunksOf(snapshot, /*trained=*/false).begin();
  const std::weak_ptr<const weights::PlacedChunk> before = worker.store().Look(hash).placed;
  worker.Follow("again", learner());
  EXPECT_EQ(worker.AwaitAndApply(1), 0u);
  EXPECT_NE(worker.store().Look(hash).placed, nullptr);
  EXPECT_TRUE(before.expired()) << "nothing keeps the old network's memory";
  EXPECT_EQ(worker.store().bytes(), BytesOf(snapshot, ChunksOf(snapshot, /*trained=*/true)));
}

// The newest snapshot may wait while the first one is loaded: it holds nothing of the base, either,
// nor of where the base was before.
// Promise: A worker's base is in host memory once.
TEST_F(FrozenPlacesTest, ASnapshotThatWaitsLetsGoOfTheBaseToo) {
  const RunSpec spec = SpecOf(model::Trained::kLora, at::kFloat, model::BaseWeights::kCompute);
  const weights::Snapshot snapshot = Published(spec, 1);
  const std::string hash = *ChunksOf(snapshot, /*trained=*/false).begin();
  ASSERT_TRUE(service_.Publish(snapshot).ok());
  prometheus::Registry registry;
  weights::FollowMetrics metrics(registry);
  absl::Notification ready;
  weights::WeightFollower follower({.endpoints = {learner()}, .epoch = Epoch(1), .worker_id = "w"},
                                   metrics, Clock::Steady(), [&] { ready.Notify(); });
  ASSERT_TRUE(ready.WaitForNotificationWithTimeout(kDeadline));
  auto before = PlaceOf(follower.Held(hash));
  const std::weak_ptr<const weights::PlacedChunk> old = before;
  follower.Place(hash, before);
  before.reset();
  const auto placed = PlaceOf(snapshot.chunks.at(hash));
  follower.Place(hash, placed);
  EXPECT_TRUE(old.expired()) << "a network that has gone";
  const auto waiting = follower.TakeNewest();
  ASSERT_TRUE(waiting.has_value());
  EXPECT_FALSE(waiting->chunks.contains(hash));
  EXPECT_EQ(waiting->placed.at(hash), placed);
}

TEST_F(FrozenPlacesTest, ASnapshotThatIsBeingFetchedLetsGoOfTheBaseToo) {
  const RunSpec spec = SpecOf(model::Trained::kLora, at::kFloat, model::BaseWeights::kCompute);
  const weights::Snapshot snapshot = Published(spec, 1);
  const std::set<std::string> frozen = ChunksOf(snapshot, /*trained=*/false);
  const std::string hash = *frozen.begin(), other = *frozen.rbegin();
  const auto before = PlaceOf(snapshot.chunks.at(other));
  const auto placed = PlaceOf(snapshot.chunks.at(hash));
  ASSERT_TRUE(service_.Publish(snapshot).ok());
  prometheus::Registry registry;
  weights::FollowMetrics metrics(registry);
  absl::Notification made, ready;
  std::unique_ptr<weights::WeightFollower> follower;
  follower = std::make_unique<weights::WeightFollower>(
      weights::WeightFollower::Options{
          .endpoints = {learner()},
          .epoch = Epoch(1),
          .worker_id = "w",
          .local =
              [&](const v1::SnapshotManifest&, weights::Download& download) {
                ASSERT_TRUE(made.WaitForNotificationWithTimeout(kDeadline));
                ASSERT_TRUE(download.Offer(hash, *snapshot.chunks.at(hash)).ok());
                ASSERT_TRUE(download.Offer(other, before).ok());
                download.Settle();
                follower->Place(hash, placed);
                follower->Place(other, placed);
              }},
      metrics, Clock::Steady(), [&] { ready.Notify(); });
  made.Notify();
  ASSERT_TRUE(ready.WaitForNotificationWithTimeout(kDeadline));
  const auto waiting = follower->TakeNewest();
  ASSERT_TRUE(waiting.has_value());
  EXPECT_FALSE(waiting->chunks.contains(hash));
  EXPECT_EQ(waiting->placed.at(hash), placed);
  EXPECT_EQ(waiting->placed.at(other), placed) << "not where it was when its download began";
}

}  // namespace
}  // namespace oxbow::rollout
