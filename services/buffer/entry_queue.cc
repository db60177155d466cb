#include "services/buffer/entry_queue.h"

#include "base/check.h"

namespace oxbow::buffer {

void EntryQueue::Add(uint64_t place, const EntryRecord& record) {
  const bool added = entries_.emplace(place, record).second;
  OXBOW_CHECK(added && places_.emplace(record.facts.id, place).second)
      << "twice in " << policy_.name << ": " << record.facts.id;
  bytes_ += record.extent.bytes();
}

uint64_t EntryQueue::Remove(EntryId id) {
  const uint64_t place = places_.at(id);
  bytes_ -= entries_.at(place).extent.bytes();
  entries_.erase(place);
  places_.erase(id);
  return place;
}

uint64_t EntryQueue::CountUse(EntryId id, LearnerStep step) {
  const uint64_t place = places_.at(id);
  replay::EntryFacts& facts = entries_.at(place).facts;
  ++facts.uses;
  facts.last_used = step;
  return place;
}

const EntryRecord* EntryQueue::Find(EntryId id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : &entries_.at(found->second);
}

// Queues are short.
const EntryRecord* EntryQueue::NewestOfPrompt(PromptId prompt) const {
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) {
    if (at->second.facts.prompt == prompt) return &at->second;
  }
  return nullptr;
}

std::map<uint64_t, EntryRecord>::const_iterator EntryQueue::After(EntryId id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? entries_.begin() : entries_.upper_bound(found->second);
}

}  // namespace oxbow::buffer
