// The entries of one queue of a replay store in memory, oldest first, found by id and by prompt.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "core/replay/table_policy.h"
#include "services/buffer/replay_records.h"

namespace oxbow::buffer {

class EntryQueue {
 public:
  explicit EntryQueue(replay::TablePolicy policy) : policy_(std::move(policy)) {}

  // Places go up: the oldest has the lowest. Requires a place and an id that are not there.
  void Add(uint64_t place, const EntryRecord& record);

  // Requires that the id is there. Returns the place it had.
  uint64_t Remove(EntryId id);

  // Counts a use in `step`. Requires that the id is there. Returns its place.
  uint64_t CountUse(EntryId id, LearnerStep step);

  // Null if it is not there; valid until the next change.
  const EntryRecord* Find(EntryId id) const;
  const EntryRecord* NewestOfPrompt(PromptId prompt) const;

  // By place. `After` gives the first place behind an entry's; that of all for an unknown id.
  const std::map<uint64_t, EntryRecord>& entries() const { return entries_; }
  std::map<uint64_t, EntryRecord>::const_iterator After(EntryId id) const;

  const replay::TablePolicy& policy() const { return policy_; }
  uint64_t size() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  const replay::TablePolicy policy_;
  std::map<uint64_t, EntryRecord> entries_;
  absl::flat_hash_map<EntryId, uint64_t> places_;
  uint64_t bytes_ = 0;
};

}  // namespace oxbow::buffer
