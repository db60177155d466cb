#include "core/replay/replay_index.h"

#include "base/check.h"

namespace oxbow::replay {

void ReplayIndex::Add(const EntryFacts& entry) {
  OXBOW_CHECK(entries_.emplace(entry.id, entry).second) << "entry twice: " << entry.id;
  OXBOW_CHECK(by_prompt_.emplace(entry.prompt, entry.id).second)
      << "prompt twice: " << entry.prompt;
  by_priority_.insert(KeyOf(decay_, entry.reward, entry.birth, entry.id));
}

void ReplayIndex::Remove(EntryId id) {
  const auto found = entries_.find(id);
  OXBOW_CHECK(found != entries_.end()) << "no such entry: " << id;
  const EntryFacts& entry = found->second;
  OXBOW_CHECK(by_prompt_.erase(entry.prompt) == 1) << entry.prompt;
  OXBOW_CHECK(by_priority_.erase(KeyOf(decay_, entry.reward, entry.birth, id)) == 1) << id;
  entries_.erase(found);
}

const EntryFacts& ReplayIndex::CountUse(EntryId id, LearnerStep step) {
  const auto found = entries_.find(id);
  OXBOW_CHECK(found != entries_.end()) << "no such entry: " << id;
  ++found->second.uses;
  found->second.last_used = step;
  return found->second;
}

const EntryFacts* ReplayIndex::Find(EntryId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

const EntryFacts* ReplayIndex::OfPrompt(PromptId prompt) const {
  const auto found = by_prompt_.find(prompt);
  return found == by_prompt_.end() ? nullptr : Find(found->second);
}

const EntryFacts* ReplayIndex::Lowest() const {
  return by_priority_.empty() ? nullptr : Find(by_priority_.begin()->id);
}

double ReplayIndex::PriorityOf(const EntryFacts& entry, LearnerStep now) const {
  return PriorityAt(decay_, entry.reward, AgeAt(now, entry.birth));
}

std::optional<Occupant> ReplayIndex::OccupantOf(const EntryFacts* entry, LearnerStep now) const {
  if (entry == nullptr) return std::nullopt;
  return Occupant{entry->id, PriorityOf(*entry, now)};
}

Situation ReplayIndex::SituationOf(PromptId prompt, double reward, LearnerStep now,
                                   uint64_t capacity) const {
  return {.candidate_reward = reward,
          .same_prompt = OccupantOf(OfPrompt(prompt), now),
          .lowest = OccupantOf(Lowest(), now),
          .size = size(),
          .capacity = capacity};
}

}  // namespace oxbow::replay
