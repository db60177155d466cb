// SPDX-License-Identifier: Apache-2.0
// Data that leave the learner beside leases, for coordinator_bench and fleet_load: conditioning of
// prompts and the manifests of weights. Both are the product's code; prompts and weights are made
// up.
#pragma once

#include <grpcpp/channel.h>
#include <prometheus/registry.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/learner/plan/step_plan.h"
#include "services/rollout/conditioning_source.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weight_relay.h"

namespace oxbow::bench {

// ---- In the learner's process.

// As many prompts as said, each with so many bytes of its own.
class Prompts {
 public:
  Prompts(uint64_t count, uint64_t bytes);
  const learner::SentConditioning& Of(uint64_t group) const { return sent_[group % sent_.size()]; }
  weights::ContentStore& content() { return content_; }

 private:
  weights::ContentStore content_{/*bytes_max=*/0};
  std::vector<learner::SentConditioning> sent_;
};

// Versions of an adapter on frozen weights. Chunks are small, so that a manifest has the size of
// one of weights a thousand times as large.
class Adapter {
 public:
  Adapter(uint64_t base_chunks, uint64_t adapter_chunks, Epoch epoch);
  weights::Snapshot Next();

 private:
  const uint64_t adapter_chunks_;
  const Epoch epoch_;
  uint64_t version_ = 0;
  std::unique_ptr<weights::SnapshotMaker> maker_;
};

// ---- In the workers' process.

// The workers' conditioning. Each worker holds the last few that it was leased; what one has
// fetched, the others get from it.
class Conditionings {
 public:
  Conditionings(int workers, size_t held_max, Epoch epoch);

  // Where all workers serve each other.
  const std::string& endpoint() const { return relay_->endpoint(); }
  void Begin(const std::string& learner);
  // Gets what this lease of this worker needs, as the worker would.
  void Get(int worker, const v1::Lease& lease);

  struct Count {  // Bytes by where they were found.
    double learner = 0;
    double peer = 0;
    double held = 0;
  };
  Count count() const;  // So far.
  void PrintSince(const Count& before) const;

 private:
  const size_t held_max_;
  const Epoch epoch_;
  prometheus::Registry registry_;
  rollout::RolloutMetrics metrics_{registry_};
  weights::FollowMetrics follow_metrics_{registry_};
  std::unique_ptr<weights::WeightRelay> relay_;
  std::unique_ptr<rollout::ConditioningSource> source_;
  absl::Mutex mutex_;
  std::vector<std::vector<std::string>> held_ ABSL_GUARDED_BY(mutex_);  // Hashes, by worker.
};

// A stream of manifests for each worker.
class Watchers {
 public:
  struct Names {  // w0, w1, ...
    int first = 0;
    int count = 0;
  };
  // `relay`: where all of them say that they serve others. With `reads` they know what they are
  // told; else a message is so many bytes.
  Watchers(const std::vector<std::shared_ptr<grpc::Channel>>& channels, Names names,
           const std::string& relay, Epoch epoch, bool reads = false);
  ~Watchers();

  struct Count {
    uint64_t bytes = 0;  // Received by all of them.
    uint64_t messages = 0;
  };
  Count count() const { return {bytes_, messages_}; }
  void PrintSince(const Count& before) const;

  // The newest version that all of them were told, and when the last one was. Requires `reads`.
  struct Told {
    uint64_t version = 0;
    absl::Duration when;  // By the steady clock.
  };
  Told told() const;

 private:
  class Watcher;
  const bool reads_;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> messages_ = 0;
  std::atomic<uint64_t> largest_ = 0;  // Bytes of the largest message: a whole manifest.
  std::vector<std::unique_ptr<Watcher>> watchers_;
};

}  // namespace oxbow::bench
