// SPDX-License-Identifier: Apache-2.0
// Where a worker gets what a lease names by its hash: the conditioning of prompts, and the weights
// of an evaluation.
//
//   held here --> peers that were leased the same --> learner
//
// Bytes that do not have the hash are dropped, and the peer that sent them is reported. What was
// fetched is held for later leases and for other workers, across restarts of the learner, as long
// as the store has room. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/rollout/rollout_metrics.h"
#include "services/weights/chunk_store.h"
#include "services/weights/content_fetcher.h"
#include "services/weights/weight_follower.h"

namespace oxbow::rollout {

class ConditioningSource {
 public:
  struct Options {
    std::string learner;  // host:port of its WeightChannel.
    Epoch epoch;
    std::string worker_id;
    absl::Duration learner_silence = absl::Seconds(60);  // The longest it may be silent.
    int tries = 4;                                       // Calls to it that bring nothing.
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(1);
    uint64_t bytes_max = uint64_t{1} << 30;  // The largest content.
  };
  using Content = weights::ChunkSize;
  using Peers = google::protobuf::RepeatedPtrField<v1::Lease::Peer>;

  // The references outlive it.
  ConditioningSource(Options options, weights::ContentStore& held, RolloutMetrics& metrics,
                     weights::FollowMetrics& follow_metrics, const Clock& clock);

  // The bytes, if this worker holds them; else null, and Fetch gets them.
  weights::Chunk Held(const Content& content);

  // Asks the peers, which may have them, and the learner. kInvalidArgument if it has no hash;
  // kNotFound if the learner has it no more; kDataLoss if it sends other bytes; kCancelled after
  // Cancel. Waits.
  absl::StatusOr<weights::Chunk> Fetch(const Content& content, const Peers& peers);

  // One after the other.
  absl::StatusOr<weights::Chunk> Get(const Content& content, const Peers& peers);

  // All of them, many in a call: what is held here, and for each call what the peers have by then,
  // the rest from the learner. Errors as Fetch. Waits.
  absl::StatusOr<weights::ChunksByHash> GetAll(const std::vector<Content>& contents,
                                               const Peers& peers);

  // The serialised Conditioning of a lease.
  weights::Chunk Held(const v1::Lease& lease) { return Held(ConditioningOf(lease)); }
  absl::StatusOr<weights::Chunk> Fetch(const v1::Lease& lease) {
    return Fetch(ConditioningOf(lease), lease.conditioning_peers());
  }

  // Ends all calls under way and later ones.
  void Cancel() { fetcher_.Cancel(); }

 private:
  // Contents that several threads want from the learner at the same time: they come in one call.
  struct Round;

  static Content ConditioningOf(const v1::Lease& lease);
  absl::Status Check(const Content& content) const;
  std::vector<weights::Peer> Others(const Peers& peers) const;
  std::shared_ptr<const Round> FetchTogether(const Content& content);

  const Options options_;
  weights::ContentStore& held_;
  RolloutMetrics& metrics_;
  weights::ContentFetcher fetcher_;
  absl::Mutex mutex_;
  std::shared_ptr<Round> next_ ABSL_GUARDED_BY(mutex_);  // It is open: no call is made for it yet.
  bool fetching_ ABSL_GUARDED_BY(mutex_) = false;
};

// The weights that leases of held-out pictures name: a manifest and its chunks, by hash.
//
//   chunks of the weights in use --> peers that draw the same evaluation --> learner
//
// Weights that this worker has are not copied. Others are fetched a few hundred chunks in a call.
// They are held until an evaluation of other weights comes. Training goes on for one step at most
// while an evaluation is drawn, so they are let go of when weights have been applied twice and no
// lease has named them. Thread-safe.
class EvaluatedWeights {
 public:
  using Weights = std::shared_ptr<const weights::VerifiedSnapshot>;

  // `held` gives a chunk of the weights in use, or null. Both outlive this.
  EvaluatedWeights(ConditioningSource& source,
                   std::function<weights::Chunk(const std::string& sha256)> held);

  // Waits for what has to be fetched. One caller at a time fetches.
  absl::StatusOr<Weights> Get(const v1::Lease::Pictures& pictures);

  // Other weights are in use. Those of an evaluation live on while something draws with them.
  void Applied();

 private:
  absl::StatusOr<Weights> Fetch(const v1::Lease::Pictures& pictures);

  ConditioningSource& source_;
  const std::function<weights::Chunk(const std::string& sha256)> held_;
  absl::Mutex fetching_;
  absl::Mutex mutex_;
  std::string sha256_ ABSL_GUARDED_BY(mutex_);  // The manifest's.
  Weights last_ ABSL_GUARDED_BY(mutex_);
  int applied_ ABSL_GUARDED_BY(mutex_) = 0;  // Times since a lease named them.
};

}  // namespace oxbow::rollout
