// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_metrics.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "telemetry/metrics.h"

namespace oxbow::buffer {
namespace {

using telemetry::Buckets;
using telemetry::Metric;

constexpr std::array<const char*, kOutcomes> kOutcomeNames = {
    "inserted", "replaced", "rejected_lower", "duplicate", "rejected_invalid"};

const Buckets kSeconds = {.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10};
const Buckets kSteps = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256};

// The gauges of a store.
std::vector<std::pair<const exported::Gauge&, double>> GaugesOf(const StoreInfo& info) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  return {{exported::kReplayEntries, number(info.entries)},
          {exported::kReplayCapacity, number(info.capacity)},
          {exported::kReplayRetiredEntries, number(info.retired)},
          {exported::kReplayBytes, number(info.bytes)},
          {exported::kReplayDiskBytes, number(info.disk_bytes)},
          {exported::kReplayWritesStopped, info.writes_stopped ? 1 : 0},
          {exported::kReplayCompactionPendingBytes, number(info.compaction_pending_bytes)},
          {exported::kReplayStep, number(info.step.value)},
          {exported::kReplayRewardMean, info.reward_mean},
          {exported::kReplayPriorityMin, info.priority_min},
          {exported::kReplayPriorityMean, info.priority_mean},
          {exported::kReplayPriorityP10, info.priority_p10},
          {exported::kReplayPriorityP50, info.priority_p50},
          {exported::kReplayPriorityP90, info.priority_p90},
          {exported::kReplayEntryAgeMeanSteps, info.age_mean_steps},
          {exported::kReplayEntryAgeMaxSteps, info.age_max_steps},
          {exported::kReplayEntryUsesMean, info.uses_mean}};
}

}  // namespace

ReplayMetrics::Counters::Counters(prometheus::Registry& r)
    : offered_bytes(Metric(r, exported::kReplayOfferedBytesTotal)),
      draws(Metric(r, exported::kReplayDrawsTotal)),
      drawn_entries(Metric(r, exported::kReplayDrawnEntriesTotal)),
      read_bytes(Metric(r, exported::kReplayReadBytesTotal)),
      uses(Metric(r, exported::kReplayUsesTotal)),
      evicted(Metric(r, exported::kReplayEvictedTotal)),
      failed_calls(Metric(r, exported::kReplayFailedCallsTotal)),
      damaged(Metric(r, exported::kReplayDamagedEntriesTotal)),
      stall_seconds(Metric(r, exported::kReplayStallSecondsTotal)) {}

ReplayMetrics::ReplayMetrics(prometheus::Registry& r)
    : registry_(r),
      counters_(r),
      offer_seconds_(Metric(r, exported::kReplayOfferDurationSeconds, kSeconds)),
      sync_seconds_(Metric(r, exported::kReplayWalSyncDurationSeconds, kSeconds)),
      staleness_steps_(Metric(r, exported::kReplayStalenessSteps, kSteps)) {
  for (size_t i = 0; i < kOutcomes; ++i) {
    offers_[i] = &Metric(r, exported::kReplayOffersTotal, {{"outcome", kOutcomeNames[i]}});
  }
  for (const auto& [row, _] : GaugesOf({})) Metric(r, row);
}

void ReplayMetrics::Offered(const OfferReport& report, uint64_t bytes, absl::Duration duration) {
  counters_.offered_bytes.Increment(static_cast<double>(bytes));
  offer_seconds_.Observe(absl::ToDoubleSeconds(duration));
  if (report.sync_time > absl::ZeroDuration()) {
    sync_seconds_.Observe(absl::ToDoubleSeconds(report.sync_time));
  }
}

void ReplayMetrics::Drawn(uint64_t entries) {
  counters_.draws.Increment();
  counters_.drawn_entries.Increment(static_cast<double>(entries));
}

void ReplayMetrics::BytesRead(uint64_t bytes) {
  counters_.read_bytes.Increment(static_cast<double>(bytes));
}

void ReplayMetrics::Advanced(const AdvanceReport& report) {
  for (const uint64_t age : report.used_ages) staleness_steps_.Observe(static_cast<double>(age));
  counters_.uses.Increment(static_cast<double>(report.used_ages.size()));
  counters_.evicted.Increment(static_cast<double>(report.evicted));
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
    raise(counters_.damaged, info.damaged);
    for (const TableState& state : info.tables) {
      Table& table = Of(state.policy.name);
      table.entries->Set(static_cast<double>(state.entries));
      table.bytes->Set(static_cast<double>(state.bytes));
      raise(*table.evicted, state.evicted);
      for (size_t i = 0; i < kOutcomes; ++i) raise(*table.offers[i], state.offers[i]);
    }
    // Less than before: another database was opened and counts from zero.
    counters_.stall_seconds.Increment(info.stall_seconds -
                                      (info.stall_seconds < stall_seen_ ? 0 : stall_seen_));
    stall_seen_ = info.stall_seconds;
  }
  for (const auto& [row, value] : GaugesOf(info)) Metric(registry_, row).Set(value);
}

void ReplayMetrics::CallFailed() { counters_.failed_calls.Increment(); }

}  // namespace oxbow::buffer
