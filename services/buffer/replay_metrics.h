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

  struct Counters {
    explicit Counters(prometheus::Registry& registry);

    prometheus::Counter &offered_bytes, &draws, &drawn_entries, &read_bytes, &uses, &evicted,
        &failed_calls, &damaged, &stall_seconds;
  };

  prometheus::Registry& registry_;
  Counters counters_;
  prometheus::Histogram& offer_seconds_;
  prometheus::Histogram& sync_seconds_;
  prometheus::Histogram& staleness_steps_;
  std::array<prometheus::Counter*, kOutcomes> offers_;
  absl::Mutex mutex_;
  std::map<std::string, Table> tables_ ABSL_GUARDED_BY(mutex_);
  double stall_seen_ ABSL_GUARDED_BY(mutex_) = 0;  // Stall seconds of the open database.
};

}  // namespace oxbow::buffer
