// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_metrics.h"

#include <algorithm>

#include "telemetry/metrics.h"

namespace oxbow::buffer {
namespace {

using telemetry::Buckets;
using telemetry::Metric;

constexpr std::array<const char*, kOutcomes> kOutcomeNames = {
    "inserted", "replaced", "rejected_lower", "duplicate", "rejected_invalid"};

const Buckets kSeconds = {.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10};
const Buckets kSteps = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256};

}  // namespace

ReplayMetrics::ReplayMetrics(prometheus::Registry& r)
    : registry_(r),
      offered_bytes_(Metric(r, exported::kReplayOfferedBytesTotal)),
      offer_seconds_(Metric(r, exported::kReplayOfferDurationSeconds, kSeconds)),
      sync_seconds_(Metric(r, exported::kReplayWalSyncDurationSeconds, kSeconds)),
      draws_(Metric(r, exported::kReplayDrawsTotal)),
      drawn_entries_(Metric(r, exported::kReplayDrawnEntriesTotal)),
      read_bytes_(Metric(r, exported::kReplayReadBytesTotal)),
      uses_(Metric(r, exported::kReplayUsesTotal)),
      evicted_(Metric(r, exported::kReplayEvictedTotal)),
      failed_calls_(Metric(r, exported::kReplayFailedCallsTotal)),
      damaged_(Metric(r, exported::kReplayDamagedEntriesTotal)),
      staleness_steps_(Metric(r, exported::kReplayStalenessSteps, kSteps)),
      entries_(Metric(r, exported::kReplayEntries)),
      capacity_(Metric(r, exported::kReplayCapacity)),
      retired_(Metric(r, exported::kReplayRetiredEntries)),
      bytes_(Metric(r, exported::kReplayBytes)),
      disk_bytes_(Metric(r, exported::kReplayDiskBytes)),
      writes_stopped_(Metric(r, exported::kReplayWritesStopped)),
      compaction_pending_(Metric(r, exported::kReplayCompactionPendingBytes)),
      stall_seconds_(Metric(r, exported::kReplayStallSecondsTotal)),
      step_(Metric(r, exported::kReplayStep)),
      reward_mean_(Metric(r, exported::kReplayRewardMean)),
      priority_min_(Metric(r, exported::kReplayPriorityMin)),
      priority_mean_(Metric(r, exported::kReplayPriorityMean)),
      priority_p10_(Metric(r, exported::kReplayPriorityP10)),
      priority_p50_(Metric(r, exported::kReplayPriorityP50)),
      priority_p90_(Metric(r, exported::kReplayPriorityP90)),
      age_mean_(Metric(r, exported::kReplayEntryAgeMeanSteps)),
      age_max_(Metric(r, exported::kReplayEntryAgeMaxSteps)),
      uses_mean_(Metric(r, exported::kReplayEntryUsesMean)) {
  for (size_t i = 0; i < kOutcomes; ++i) {
    offers_[i] = &Metric(r, exported::kReplayOffersTotal, {{"outcome", kOutcomeNames[i]}});
  }
}

void ReplayMetrics::Offered(const OfferReport& report, uint64_t bytes, absl::Duration duration) {
  offered_bytes_.Increment(static_cast<double>(bytes));
  offer_seconds_.Observe(absl::ToDoubleSeconds(duration));
  if (report.sync_time > absl::ZeroDuration()) {
    sync_seconds_.Observe(absl::ToDoubleSeconds(report.sync_time));
  }
}

void ReplayMetrics::Drawn(uint64_t entries) {
  draws_.Increment();
  drawn_entries_.Increment(static_cast<double>(entries));
}

void ReplayMetrics::BytesRead(uint64_t bytes) { read_bytes_.Increment(static_cast<double>(bytes)); }

void ReplayMetrics::Advanced(const AdvanceReport& report) {
  for (const uint64_t age : report.used_ages) staleness_steps_.Observe(static_cast<double>(age));
  uses_.Increment(static_cast<double>(report.used_ages.size()));
  evicted_.Increment(static_cast<double>(report.evicted));
}

ReplayMetrics::Table& ReplayMetrics::Of(const std::string& name) {
  if (const auto found = tables_.find(name); found != tables_.end()) return found->second;
  Table table;
  for (size_t i = 0; i < kOutcomes; ++i) {
    table.offers[i] = &Metric(registry_, exported::kReplayTableOffersTotal,
                              {{"table", name}, {"outcome", kOutcomeNames[i]}});
  }
  const prometheus::Labels labels = {{"table", name}};
  table.entries = &Metric(registry_, exported::kReplayTableEntries, labels);
  table.bytes = &Metric(registry_, exported::kReplayTableBytes, labels);
  table.evicted = &Metric(registry_, exported::kReplayTableEvictedTotal, labels);
  return tables_.emplace(name, table).first->second;
}

void ReplayMetrics::Holds(const StoreInfo& info) {
  {
    absl::MutexLock lock(&mutex_);
    // The store counts; counters follow. An older answer that comes later adds nothing.
    const auto raise = [](prometheus::Counter& counter, uint64_t to) {
      counter.Increment(std::max(0., static_cast<double>(to) - counter.Value()));
    };
    for (size_t i = 0; i < kOutcomes; ++i) raise(*offers_[i], info.offers[i]);
    raise(damaged_, info.damaged);
    for (const TableState& state : info.tables) {
      Table& table = Of(state.policy.name);
      table.entries->Set(static_cast<double>(state.entries));
      table.bytes->Set(static_cast<double>(state.bytes));
      raise(*table.evicted, state.evicted);
      for (size_t i = 0; i < kOutcomes; ++i) raise(*table.offers[i], state.offers[i]);
    }
    // Less than before: another database was opened and counts from zero.
    stall_seconds_.Increment(info.stall_seconds -
                             (info.stall_seconds < stall_seen_ ? 0 : stall_seen_));
    stall_seen_ = info.stall_seconds;
  }
  entries_.Set(static_cast<double>(info.entries));
  capacity_.Set(static_cast<double>(info.capacity));
  retired_.Set(static_cast<double>(info.retired));
  bytes_.Set(static_cast<double>(info.bytes));
  disk_bytes_.Set(static_cast<double>(info.disk_bytes));
  writes_stopped_.Set(info.writes_stopped ? 1 : 0);
  compaction_pending_.Set(static_cast<double>(info.compaction_pending_bytes));
  step_.Set(static_cast<double>(info.step.value));
  reward_mean_.Set(info.reward_mean);
  priority_min_.Set(info.priority_min);
  priority_mean_.Set(info.priority_mean);
  priority_p10_.Set(info.priority_p10);
  priority_p50_.Set(info.priority_p50);
  priority_p90_.Set(info.priority_p90);
  age_mean_.Set(info.age_mean_steps);
  age_max_.Set(info.age_max_steps);
  uses_mean_.Set(info.uses_mean);
}

void ReplayMetrics::CallFailed() { failed_calls_.Increment(); }

}  // namespace oxbow::buffer
