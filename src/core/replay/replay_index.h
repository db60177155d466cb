// The live entries of a buffer in memory, found by id, by prompt and by lowest priority.
//
// Holds no more than facts: about 200 bytes an entry. At most one entry per prompt; adding a second
// is a broken invariant. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "core/replay/entry_facts.h"
#include "core/replay/priority.h"
#include "core/replay/replacement.h"

namespace oxbow::replay {

class ReplayIndex {
 public:
  explicit ReplayIndex(Decay decay) : decay_(decay) {}

  // Requires an id and a prompt that are not there, and a finite reward.
  void Add(const EntryFacts& entry);

  // Requires that the id is there.
  void Remove(EntryId id);

  // Counts a use in `step`. Requires that the id is there.
  const EntryFacts& CountUse(EntryId id, LearnerStep step);

  // Null if it is not there; valid until the next change.
  const EntryFacts* Find(EntryId id) const;
  const EntryFacts* OfPrompt(PromptId prompt) const;
  const EntryFacts* Lowest() const;

  // What replacement::Decide needs to know about a candidate at step `now`.
  Situation SituationOf(PromptId prompt, double reward, LearnerStep now, uint64_t capacity) const;

  double PriorityOf(const EntryFacts& entry, LearnerStep now) const;

  // By id.
  const std::map<EntryId, EntryFacts>& entries() const { return entries_; }
  uint64_t size() const { return entries_.size(); }

 private:
  std::optional<Occupant> OccupantOf(const EntryFacts* entry, LearnerStep now) const;

  const Decay decay_;
  std::map<EntryId, EntryFacts> entries_;
  absl::flat_hash_map<PromptId, EntryId> by_prompt_;
  std::set<PriorityKey> by_priority_;
};

}  // namespace oxbow::replay
