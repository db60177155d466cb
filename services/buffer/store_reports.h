// SPDX-License-Identifier: Apache-2.0
// Options of the replay store, and what its calls answer.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "core/replay/priority.h"
#include "core/replay/table_policy.h"
#include "services/buffer/entry.h"
#include "services/buffer/ownership.h"
#include "services/buffer/replay_state.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace oxbow::buffer {

struct ReplayOptions {
  std::filesystem::path directory;
  std::vector<replay::TablePolicy> tables = {replay::BestTable(/*capacity=*/512)};  // Best first.
  replay::Decay decay;
  uint64_t remembered_steps = 1024;
  uint64_t open_draws_max = 64;           // Steps that may hold entries at a time.
  uint64_t remembered_max = 1'000'000;    // Ids.
  rocksdb::Env* environment = nullptr;    // Tests inject faults here. Not owned.
  const Clock* clock = &Clock::Steady();  // Not owned.
  SegmentSizes segments;                  // The sizes of large entries, and of their files.
  bool read_only = false;                 // Set by ReplayStore::OpenForReading.
};

enum class Outcome { kInserted, kReplaced, kRejectedLower, kDuplicate, kRejectedInvalid };
inline constexpr size_t kOutcomes = 5;

struct OfferResult {
  EntryId entry;
  Outcome outcome = Outcome::kRejectedInvalid;
  EntryId replaced;   // Only with kReplaced.
  std::string error;  // Only with kRejectedInvalid.
};

struct OfferReport {
  std::vector<OfferResult> results;  // One per entry, in order.
  // Write and fsync of all that was written together, told with the first of them; else zero.
  absl::Duration sync_time;
  uint64_t together = 1;  // Offers that were written with it, and it.
};

struct DrawReport {
  std::vector<Entry> entries;  // Without conditioning.
  uint64_t eligible = 0;
};

struct AdvanceReport {
  std::vector<uint64_t> used_ages;  // Ages of the used entries, in steps. Empty for a step it knew.
  uint64_t evicted = 0;             // From best: as the caller asked, and what failed too often.
  uint64_t failed = 0;              // Regenerations that failed.
};

struct TableState {
  replay::TablePolicy policy;
  uint64_t entries = 0;
  uint64_t bytes = 0;
  // Since the start of the process:
  uint64_t evicted = 0;                      // For room or age; best replaces instead.
  std::array<uint64_t, kOutcomes> offers{};  // By outcome.
};

// Numbers that are not of the whole store or in `tables` are of best.
struct StoreInfo {
  uint64_t entries = 0;
  uint64_t capacity = 0;
  uint64_t bytes = 0;
  uint64_t retired = 0;
  uint64_t disk_bytes = 0;      // Files; more than `bytes` until compaction has caught up.
  bool writes_stopped = false;  // Until compaction has caught up.
  uint64_t compaction_pending_bytes = 0;
  double stall_seconds =
      0;  // Writes held back since the database was opened; Restore opens another.
  uint64_t disk_free_bytes = 0;
  LearnerStep step;
  Epoch epoch;
  Owner owner;
  uint64_t damaged = 0;  // Entries that left because they were damaged, since the start.
  double reward_mean = 0;
  double priority_min = 0;
  double priority_mean = 0;
  double priority_p10 = 0;  // A tenth of the entries is at or below it; p50 half, p90 nine tenths.
  double priority_p50 = 0;
  double priority_p90 = 0;
  double age_mean_steps = 0;
  double age_max_steps = 0;
  double uses_mean = 0;
  std::array<uint64_t, kOutcomes> offers{};  // By outcome, since the start of the process.
  std::vector<TableState> tables;            // best first.
};

}  // namespace oxbow::buffer
