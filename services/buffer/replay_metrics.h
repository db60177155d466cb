// SPDX-License-Identifier: Apache-2.0
// Metrics of the replay buffer, as verbs.
#pragma once

#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/buffer/replay_store.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace oxbow::buffer {

class ReplayMetrics {
 public:
  explicit ReplayMetrics(prometheus::Registry& registry);

  void Offered(const OfferReport& report, uint64_t bytes, absl::Duration duration);
  void Drawn(uint64_t entries);
  void BytesRead(uint64_t bytes);
  void Advanced(const AdvanceReport& report);
  void Holds(const StoreInfo& info);  // Sets the gauges.
  void CallFailed();

 private:
  struct Table {
    std::array<prometheus::Counter*, kOutcomes> offers;
    prometheus::Gauge* entries;
    prometheus::Gauge* bytes;
    prometheus::Counter* evicted;
  };
  Table& Of(const std::string& table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  prometheus::Registry& registry_;
  std::array<prometheus::Counter*, kOutcomes> offers_;
  prometheus::Counter& offered_bytes_;
  prometheus::Histogram& offer_seconds_;
  prometheus::Histogram& sync_seconds_;
  prometheus::Counter& draws_;
  prometheus::Counter& drawn_entries_;
  prometheus::Counter& read_bytes_;
  prometheus::Counter& uses_;
  prometheus::Counter& evicted_;
  prometheus::Counter& failed_calls_;
  prometheus::Counter& damaged_;
  prometheus::Histogram& staleness_steps_;
  prometheus::Gauge& entries_;
  prometheus::Gauge& capacity_;
  prometheus::Gauge& retired_;
  prometheus::Gauge& bytes_;
  prometheus::Gauge& disk_bytes_;
  prometheus::Gauge& writes_stopped_;
  prometheus::Gauge& compaction_pending_;
  prometheus::Counter& stall_seconds_;
  prometheus::Gauge& step_;
  prometheus::Gauge& reward_mean_;
  prometheus::Gauge& priority_min_;
  prometheus::Gauge& priority_mean_;
  prometheus::Gauge& priority_p10_;
  prometheus::Gauge& priority_p50_;
  prometheus::Gauge& priority_p90_;
  prometheus::Gauge& age_mean_;
  prometheus::Gauge& age_max_;
  prometheus::Gauge& uses_mean_;
  absl::Mutex mutex_;
  std::map<std::string, Table> tables_ ABSL_GUARDED_BY(mutex_);
  double stall_seen_ ABSL_GUARDED_BY(mutex_) = 0;  // Stall seconds of the open database.
};

}  // namespace oxbow::buffer
