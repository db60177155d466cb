// What publishing and following weights count, as verbs.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "base/ids.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace oxbow::weights {

// The learner's side. `registry` outlives it; at most one per registry.
class PublishMetrics {
 public:
  explicit PublishMetrics(prometheus::Registry& registry);
  void Published(PolicyVersion version, absl::Duration took, uint64_t bytes_held);
  void ChunkServed(uint64_t bytes);
  void WatcherApplied(bool bits_equal);
  void WatcherRefused();

 private:
  prometheus::Histogram& publish_seconds_;
  prometheus::Gauge& published_version_;
  prometheus::Gauge& held_bytes_;
  prometheus::Counter& served_bytes_;
  prometheus::Counter& applied_equal_;
  prometheus::Counter& applied_close_;
  prometheus::Counter& refused_;
};

// The worker's side.
class FollowMetrics {
 public:
  explicit FollowMetrics(prometheus::Registry& registry);
  void Announced(PolicyVersion version);  // The newest known to exist.
  void Fetched(absl::Duration took, uint64_t bytes);
  void ChunkCorrupt();
  void Applied(PolicyVersion version, absl::Duration took);
  void Refused();

 private:
  void SetLag();

  prometheus::Histogram& fetch_seconds_;
  prometheus::Histogram& apply_seconds_;
  prometheus::Counter& fetched_bytes_;
  prometheus::Counter& corrupt_chunks_;
  prometheus::Counter& refused_;
  prometheus::Gauge& announced_version_;
  prometheus::Gauge& applied_version_;
  prometheus::Gauge& lag_;
};

}  // namespace oxbow::weights
