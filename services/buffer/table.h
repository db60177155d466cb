// SPDX-License-Identifier: Apache-2.0
// A table of the replay store in memory: the records of its entries, under the rules of its policy
// (core/replay). `best` and the queues differ only by policy.
//
// Decides and draws; writes nothing. An entry takes about 500 bytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "core/replay/draw.h"
#include "core/replay/priority.h"
#include "core/replay/table_policy.h"
#include "core/replay/value_sums.h"
#include "services/buffer/entry.h"

namespace oxbow::buffer {

class Table {
 public:
  Table(replay::TablePolicy policy, const replay::Decay& decay)
      : policy_(std::move(policy)), decay_(decay), sums_(decay) {}

  // Whether the candidate enters at step `now`, and which entry it replaces. It may still be one
  // too many afterwards: see NextToLeave.
  replay::Decision Decide(const Entry& candidate, LearnerStep now) const;

  // Requires an id and a place that are not there; where the better entry of a prompt stays, also a
  // prompt that is not there and a finite reward.
  void Add(Entry entry);

  // Requires that the id is there.
  Entry Remove(EntryId id);

  // Counts a use in `step`. Requires that the id is there.
  const Entry& CountUse(EntryId id, LearnerStep step);

  // Notes a regeneration of an entry. Requires that the id is there and a finite reward.
  const Entry& Rescore(const Rescored& rescored);

  // Notes where an entry lies now. Requires that the id is there.
  const Entry& Move(EntryId id, Location to);

  // Null if there is none; valid until the next change.
  const Entry* Find(EntryId id) const;
  const Entry* NewestOfPrompt(PromptId prompt) const;
  const Entry* NextToLeave() const;            // When the table is over its capacity.
  const Entry* TooOld(LearnerStep now) const;  // The oldest, if it is past age_max.

  // Whether a list may have an entry. Called once of each, in the list's order; none: all may.
  using Usable = std::function<bool(const Entry& entry)>;

  // Up to `limit` usable entries behind `id` in the table's order. Best is in the order of ids; a
  // queue is in the order of arrival, and all of it is behind an id that is not there.
  std::vector<const Entry*> After(EntryId id, uint64_t limit, const Usable& usable = {}) const;

  // Up to `limit` usable entries that may be drawn for `step` under `limits`, newest first; of
  // equally new ones the lower id first. They come behind the entry `after` that was born in
  // `after_birth`, whether it is there or not; with an id of 0, from the first.
  std::vector<const Entry*> Newest(LearnerStep step, const replay::DrawLimits& limits,
                                   EntryId after, LearnerStep after_birth, uint64_t limit,
                                   const Usable& usable = {}) const;

  // Up to `count` eligible entries for `step`: a function of content, seed and step.
  replay::Drawn Draw(LearnerStep step, uint64_t count, uint64_t seed) const;

  double PriorityOf(const Entry& entry, LearnerStep now) const;

  // The smallest priority at `now` that at least `percent` of the entries are at or below, of a
  // table that its lowest entry leaves. Logarithmic in its size; only while an entry is there that
  // was born after `now`, which no learner offers, it walks over all. 0 of an empty table.
  double PriorityPercentile(uint64_t percent, LearnerStep now) const;
  const replay::ValueSums& sums() const { return sums_; }
  uint64_t uses() const { return uses_; }  // Sum over all entries.

  // Whether an entry's place is its id.
  bool ordered_by_id() const { return policy_.insert == replay::InsertPolicy::kBetter; }

  const replay::TablePolicy& policy() const { return policy_; }
  const std::map<uint64_t, Entry>& entries() const { return entries_; }  // By place.
  uint64_t size() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  // Its place where the newest come first.
  static std::pair<uint64_t, EntryId> NewestKey(LearnerStep birth, EntryId id) {
    return {~birth.value, id};
  }
  bool evicts_lowest() const { return policy_.evict == replay::EvictPolicy::kLowest; }
  replay::PriorityKey KeyOf(const Entry& entry) const;

  const replay::TablePolicy policy_;
  const replay::Decay decay_;
  std::map<uint64_t, Entry> entries_;
  absl::flat_hash_map<EntryId, uint64_t> places_;
  std::set<std::pair<PromptId, uint64_t>> prompts_;  // With places.
  std::set<std::pair<uint64_t, EntryId>> newest_;    // NewestKey of each.
  // With the rank of each. Empty where the oldest leaves.
  __gnu_pbds::tree<replay::PriorityKey, __gnu_pbds::null_type, std::less<>, __gnu_pbds::rb_tree_tag,
                   __gnu_pbds::tree_order_statistics_node_update>
      priorities_;
  replay::ValueSums sums_;
  uint64_t uses_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace oxbow::buffer
