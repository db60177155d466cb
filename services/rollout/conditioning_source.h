// SPDX-License-Identifier: Apache-2.0
// Where a worker gets the conditioning that a lease names by its hash.
//
//   held here --> peers that were leased the same --> learner
//
// Bytes that do not have the hash are dropped, and the peer that sent them is reported. What was
// fetched is held for later leases and for other workers, across restarts of the learner, as long
// as the store has room. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "oxbow/v1/coordinator.pb.h"
#include "rpc/silence_guard.h"
#include "services/rollout/rollout_metrics.h"
#include "services/weights/content_store.h"

namespace oxbow::rollout {

class ConditioningSource {
 public:
  struct Options {
    std::string learner;  // host:port of its WeightChannel.
    Epoch epoch;
    std::string worker_id;
    absl::Duration peer_silence = absl::Seconds(3);      // The longest a peer may be silent,
    absl::Duration learner_silence = absl::Seconds(60);  // and the learner.
    int tries = 4;                                       // Calls to the learner.
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(1);
    uint64_t bytes_max = uint64_t{1} << 30;  // For one prompt.
  };

  // The references outlive it.
  ConditioningSource(Options options, weights::ContentStore& held, RolloutMetrics& metrics,
                     const Clock& clock);

  // The serialised Conditioning, if this worker holds it; else null, and Fetch gets it.
  weights::Chunk Held(const v1::Lease& lease);

  // kInvalidArgument if the lease names no conditioning; kNotFound if the learner has it no more;
  // kDataLoss if it sends other bytes; kCancelled after Cancel. Waits.
  absl::StatusOr<weights::Chunk> Fetch(const v1::Lease& lease);

  // Ends all calls under way and later ones.
  void Cancel();

 private:
  absl::StatusOr<weights::Chunk> FetchOnce(const v1::Lease& lease, const std::string& endpoint,
                                           bool peer);
  absl::StatusOr<weights::Chunk> FetchFromPeer(const v1::Lease& lease, const v1::Lease::Peer& peer);
  absl::StatusOr<weights::Chunk> FetchFromLearner(const v1::Lease& lease);
  void Report(const v1::Lease::Peer& peer, const absl::Status& fault);

  const Options options_;
  weights::ContentStore& held_;
  RolloutMetrics& metrics_;
  rpc::SilenceGuard guard_;
  absl::Notification cancelled_;
};

}  // namespace oxbow::rollout
