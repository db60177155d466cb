// SPDX-License-Identifier: Apache-2.0
// Metrics of publishing and following weights, as verbs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/ids.h"
#include "telemetry/metrics.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace oxbow::weights {

enum class Source { kLearner, kPeer, kBroadcast };  // Where chunks come from.

// How often the newest snapshot's bytes were sent.
class EgressCopies {
 public:
  explicit EgressCopies(prometheus::Gauge& copies) : copies_(copies) {}
  void Changed(uint64_t bytes);
  void Served(uint64_t bytes);

 private:
  prometheus::Gauge& copies_;
  std::atomic<uint64_t> changed_ = 0;  // Bytes of the newest snapshot,
  std::atomic<uint64_t> served_ = 0;   // and bytes sent since it came.
};

// The learner's side of the broadcast.
class BroadcastMetrics {
 public:
  explicit BroadcastMetrics(prometheus::Registry& registry);
  void Sent(uint64_t bytes);               // Counted once, whatever the number of members.
  void Round(const std::string& outcome);  // whole | failed | skipped
  void Took(absl::Duration took);
  void MembersAre(uint64_t members);
  void GroupFailed();  // A broadcast group could not be formed.

 private:
  prometheus::Counter& bytes_;
  const telemetry::Counters rounds_;
  prometheus::Histogram& seconds_;
  prometheus::Gauge& members_;
  prometheus::Counter& groups_failed_;
};

// The learner's side. `registry` outlives it; at most one per registry.
class PublishMetrics {
 public:
  explicit PublishMetrics(prometheus::Registry& registry);
  void Published(PolicyVersion version, absl::Duration took, uint64_t bytes_held);
  void Withheld(const std::string& reason);  // not_finite | reward_floor
  void Changed(uint64_t bytes);              // Bytes of a new snapshot that no retained one had.
  void ChunkServed(uint64_t bytes);
  void ContentServed(uint64_t bytes);  // Conditioning.
  void WatchersAre(uint64_t watchers, uint64_t excluded);
  void PeerExcluded(bool corrupt);
  void WatcherApplied(bool bits_equal);
  void WatcherRefused();
  BroadcastMetrics& broadcast() { return broadcast_; }

 private:
  prometheus::Histogram& publish_seconds_;
  prometheus::Gauge& published_version_;
  prometheus::Gauge& published_time_;
  prometheus::Gauge& held_bytes_;
  prometheus::Counter& served_bytes_;
  prometheus::Counter& conditioning_bytes_;
  prometheus::Counter& changed_bytes_;
  EgressCopies egress_copies_;
  prometheus::Gauge& watchers_;
  prometheus::Gauge& excluded_;
  const telemetry::Counters faults_;    // By kind.
  const telemetry::Counters withheld_;  // Versions, by reason.
  const telemetry::Counters reports_;   // By outcome.
  BroadcastMetrics broadcast_;
};

// The worker's side.
class FollowMetrics {
 public:
  explicit FollowMetrics(prometheus::Registry& registry);
  void Announced(PolicyVersion version);  // The newest that exists.
  void Received(uint64_t bytes, Source source);
  void Fetched(absl::Duration took);
  void ChunkCorrupt();
  void PeerFailed(const std::string& how);  // corrupt | silent | lacking
  void Relayed(uint64_t bytes);
  void Applied(PolicyVersion version, absl::Duration took);
  void Refused();

 private:
  void SetLag();

  prometheus::Histogram& fetch_seconds_;
  prometheus::Histogram& apply_seconds_;
  prometheus::Counter& learner_bytes_;
  prometheus::Counter& peer_bytes_;
  prometheus::Counter& broadcast_bytes_;
  prometheus::Counter& relayed_bytes_;
  prometheus::Counter& corrupt_chunks_;
  const telemetry::Counters peers_failed_;
  prometheus::Counter& refused_;
  prometheus::Gauge& announced_version_;
  prometheus::Gauge& applied_version_;
  prometheus::Gauge& lag_;
};

}  // namespace oxbow::weights
