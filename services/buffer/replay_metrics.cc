#include "services/buffer/replay_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <algorithm>

namespace oxbow::buffer {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

constexpr std::array<const char*, kOutcomes> kOutcomeNames = {
    "inserted", "replaced", "rejected_lower", "duplicate", "rejected_invalid"};

prometheus::Histogram& Histogram(prometheus::Registry& registry, const char* name, const char* help,
                                 const Buckets& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

const Buckets kSeconds = {.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10};
const Buckets kSteps = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256};

}  // namespace

prometheus::Gauge& ReplayMetrics::Gauge(prometheus::Registry& registry, const char* name,
                                        const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Counter& ReplayMetrics::Counter(prometheus::Registry& registry, const char* name,
                                            const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

ReplayMetrics::ReplayMetrics(prometheus::Registry& r)
    : registry_(r),
      offered_bytes_(Counter(r, "oxbow_replay_offered_bytes_total", "Bytes of offered entries.")),
      offer_seconds_(Histogram(r, "oxbow_replay_offer_duration_seconds",
                               "Duration of Offer calls that succeeded.", kSeconds)),
      sync_seconds_(Histogram(r, "oxbow_replay_wal_sync_duration_seconds",
                              "Write and fsync of the log, per Offer that stored something.",
                              kSeconds)),
      draws_(Counter(r, "oxbow_replay_draws_total", "Draw calls that succeeded.")),
      drawn_entries_(Counter(r, "oxbow_replay_drawn_entries_total", "Entries given to Draw.")),
      read_bytes_(Counter(r, "oxbow_replay_read_bytes_total", "Latent bytes given to Read.")),
      uses_(Counter(r, "oxbow_replay_uses_total", "Entries that a committed step trained on.")),
      evicted_(Counter(r, "oxbow_replay_evicted_total", "Entries that the learner threw out.")),
      failed_calls_(Counter(r, "oxbow_replay_failed_calls_total", "Calls that ended in an error.")),
      staleness_steps_(Histogram(r, "oxbow_replay_staleness_steps",
                                 "Age of entries when a committed step used them, in steps.",
                                 kSteps)),
      entries_(Gauge(r, "oxbow_replay_entries", "Live entries.")),
      capacity_(Gauge(r, "oxbow_replay_capacity", "Entries that fit.")),
      retired_(Gauge(r, "oxbow_replay_retired_entries",
                     "Entries no longer live but held for a step that drew them.")),
      bytes_(Gauge(r, "oxbow_replay_bytes", "Bytes of live entries.")),
      disk_bytes_(Gauge(r, "oxbow_replay_disk_bytes", "Bytes of table and blob files.")),
      writes_stopped_(Gauge(r, "oxbow_replay_writes_stopped",
                            "1 while RocksDB takes no writes until compaction has caught up.")),
      compaction_pending_(Gauge(r, "oxbow_replay_compaction_pending_bytes",
                                "Bytes that RocksDB has yet to compact, as it estimates.")),
      stall_seconds_(Counter(r, "oxbow_replay_stall_seconds_total",
                             "Time for which RocksDB held writes back for compaction.")),
      step_(Gauge(r, "oxbow_replay_step", "Last committed learner step + 1.")),
      reward_mean_(Gauge(r, "oxbow_replay_reward_mean", "Mean raw reward of live entries.")),
      priority_min_(Gauge(r, "oxbow_replay_priority_min", "Lowest decayed priority.")),
      priority_mean_(Gauge(r, "oxbow_replay_priority_mean", "Mean decayed priority.")),
      priority_p10_(Gauge(r, "oxbow_replay_priority_p10",
                          "Decayed priority that a tenth of live entries is at or below.")),
      priority_p50_(Gauge(r, "oxbow_replay_priority_p50", "Median decayed priority.")),
      priority_p90_(Gauge(r, "oxbow_replay_priority_p90",
                          "Decayed priority that nine tenths of live entries are at or below.")),
      age_mean_(Gauge(r, "oxbow_replay_entry_age_mean_steps", "Mean age of live entries.")),
      age_max_(Gauge(r, "oxbow_replay_entry_age_max_steps", "Age of the oldest live entry.")),
      uses_mean_(Gauge(r, "oxbow_replay_entry_uses_mean", "Mean uses of live entries.")) {
  auto& offers = prometheus::BuildCounter()
                     .Name("oxbow_replay_offers_total")
                     .Help("Entries offered to the table best, by outcome.")
                     .Register(r);
  for (size_t i = 0; i < kOutcomes; ++i) offers_[i] = &offers.Add({{"outcome", kOutcomeNames[i]}});
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
  auto& offers = prometheus::BuildCounter()
                     .Name("oxbow_replay_table_offers_total")
                     .Help("Entries offered to a table, by outcome.")
                     .Register(registry_);
  for (size_t i = 0; i < kOutcomes; ++i) {
    table.offers[i] = &offers.Add({{"table", name}, {"outcome", kOutcomeNames[i]}});
  }
  const prometheus::Labels labels = {{"table", name}};
  table.entries = &prometheus::BuildGauge()
                       .Name("oxbow_replay_table_entries")
                       .Help("Entries of a table.")
                       .Register(registry_)
                       .Add(labels);
  table.bytes = &prometheus::BuildGauge()
                     .Name("oxbow_replay_table_bytes")
                     .Help("Bytes of a table's entries.")
                     .Register(registry_)
                     .Add(labels);
  table.evicted = &prometheus::BuildCounter()
                       .Name("oxbow_replay_table_evicted_total")
                       .Help("Entries that left a queue for room or age.")
                       .Register(registry_)
                       .Add(labels);
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
