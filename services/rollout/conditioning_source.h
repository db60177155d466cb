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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
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
    uint64_t bytes_max = uint64_t{1} << 30;  // The largest content.
  };

  // The references outlive it.
  ConditioningSource(Options options, weights::ContentStore& held, RolloutMetrics& metrics,
                     const Clock& clock);

  // Bytes that a lease names, and the peers that may have them.
  struct Content {
    std::string sha256;
    uint64_t bytes = 0;
    std::vector<v1::Lease::Peer> peers;
  };
  static Content ConditioningOf(const v1::Lease& lease);

  // The bytes, if this worker holds them; else null, and Fetch gets them.
  weights::Chunk Held(const Content& content);

  // kInvalidArgument if it has no hash; kNotFound if the learner has it no more; kDataLoss if it
  // sends other bytes; kCancelled after Cancel. Waits.
  absl::StatusOr<weights::Chunk> Fetch(const Content& content);

  // One after the other.
  absl::StatusOr<weights::Chunk> Get(const Content& content);

  // All of them, in order, many in a call: what is held here, and for each call what the peers have
  // by then, the rest from the learner. Errors as Fetch. Waits.
  absl::StatusOr<std::vector<weights::Chunk>> GetAll(const std::vector<Content>& contents,
                                                     const std::vector<v1::Lease::Peer>& peers);

  // The serialised Conditioning of a lease.
  weights::Chunk Held(const v1::Lease& lease) { return Held(ConditioningOf(lease)); }
  absl::StatusOr<weights::Chunk> Fetch(const v1::Lease& lease) {
    return Fetch(ConditioningOf(lease));
  }

  // Ends all calls under way and later ones.
  void Cancel();

 private:
  // Contents that several threads want from the learner at the same time: they come in one call.
  struct Round;
  struct Part;

  // Puts each content, as soon as it is whole and its hash is right, in its place in `fetched`.
  absl::Status FetchOnce(const std::vector<Content>& contents, const std::string& endpoint,
                         bool peer, std::vector<weights::Chunk>& fetched);
  static Part NextPart(const std::vector<Content>& contents, const std::vector<weights::Chunk>& got,
                       size_t& next);
  absl::Status FetchPart(std::vector<v1::Lease::Peer>& peers, Part& part);
  absl::Status FetchRestFromLearner(Part& part);
  // Fetches what lacks; keeps what came of it, also where the call fails.
  absl::Status FetchLacking(const std::string& endpoint, bool peer, Part& part);
  absl::StatusOr<weights::Chunk> FetchFromPeer(const Content& content, const v1::Lease::Peer& peer);
  absl::StatusOr<weights::Chunk> FetchFromLearner(const Content& content);
  void FetchRound(Round& round);
  absl::StatusOr<weights::Chunk> FetchAlone(const Content& content);
  absl::Status Again(const std::function<absl::Status()>& ask);
  absl::Status Check(const Content& content) const;
  void Blame(const v1::Lease::Peer& peer, const absl::Status& status);
  void Report(const v1::Lease::Peer& peer, const absl::Status& fault);

  const Options options_;
  weights::ContentStore& held_;
  RolloutMetrics& metrics_;
  rpc::SilenceGuard guard_;
  absl::Notification cancelled_;
  absl::Mutex mutex_;
  std::shared_ptr<Round> next_ ABSL_GUARDED_BY(mutex_);  // It is open: no call is made for it yet.
  bool fetching_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace oxbow::rollout
