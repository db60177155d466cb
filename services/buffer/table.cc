// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/table.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "base/check.h"

namespace oxbow::buffer {

replay::PriorityKey Table::KeyOf(const Entry& entry) const {
  return replay::KeyOf(decay_, entry.value(), entry.birth, entry.id);
}

replay::Decision Table::Decide(const Entry& candidate, LearnerStep now) const {
  const auto occupant = [&](const Entry* entry) -> std::optional<replay::Occupant> {
    if (entry == nullptr) return std::nullopt;
    return replay::Occupant{entry->id, PriorityOf(*entry, now)};
  };
  const Entry* same_prompt = NewestOfPrompt(candidate.prompt);
  switch (policy_.insert) {
    case replay::InsertPolicy::kBetter:
      return replay::Decide({.candidate_reward = candidate.value(),
                             .same_prompt = occupant(same_prompt),
                             .lowest = occupant(NextToLeave()),
                             .size = size(),
                             .capacity = policy_.capacity});
    case replay::InsertPolicy::kAppendPerPrompt:
      if (same_prompt != nullptr) return {replay::Verdict::kReplace, same_prompt->id};
      break;
    case replay::InsertPolicy::kAppend:
      break;
  }
  return {replay::Verdict::kInsert, EntryId()};
}

void Table::Add(Entry entry) {
  OXBOW_CHECK(policy_.insert != replay::InsertPolicy::kBetter ||
              NewestOfPrompt(entry.prompt) == nullptr)
      << "prompt twice: " << entry.prompt;
  OXBOW_CHECK(places_.emplace(entry.id, entry.place).second) << "entry twice: " << entry.id;
  prompts_.emplace(entry.prompt, entry.place);
  newest_.insert(NewestKey(entry.birth, entry.id));
  if (evicts_lowest()) priorities_.insert(KeyOf(entry));
  sums_.Add(entry.value(), entry.birth);
  uses_ += entry.uses;
  bytes_ += entry.bytes();
  const EntryId id = entry.id;
  OXBOW_CHECK(entries_.emplace(entry.place, std::move(entry)).second) << "place twice: " << id;
}

Entry Table::Remove(EntryId id) {
  const auto place = places_.find(id);
  OXBOW_CHECK(place != places_.end()) << "no such entry: " << id;
  Entry entry = std::move(entries_.extract(place->second).mapped());
  places_.erase(place);
  prompts_.erase({entry.prompt, entry.place});
  newest_.erase(NewestKey(entry.birth, entry.id));
  if (evicts_lowest()) priorities_.erase(KeyOf(entry));
  sums_.Remove(entry.value(), entry.birth);
  uses_ -= entry.uses;
  bytes_ -= entry.bytes();
  return entry;
}

const Entry& Table::Move(EntryId id, Location to) {
  Entry& entry = entries_.at(places_.at(id));
  entry.location = to;
  return entry;
}

const Entry& Table::CountUse(EntryId id, LearnerStep step) {
  Entry& entry = entries_.at(places_.at(id));
  ++entry.uses;
  ++uses_;
  entry.last_used = step;
  return entry;
}

const Entry& Table::Rescore(const Rescored& rescored) {
  Entry& entry = entries_.at(places_.at(rescored.entry));
  if (evicts_lowest()) priorities_.erase(KeyOf(entry));
  sums_.Remove(entry.value(), entry.birth);
  if (rescored.reward.has_value()) entry.rescored = rescored.reward;
  entry.failures = rescored.failed ? entry.failures + 1 : 0;
  ++entry.tries;
  entry.tries_failed += rescored.failed ? 1 : 0;
  sums_.Add(entry.value(), entry.birth);
  if (evicts_lowest()) priorities_.insert(KeyOf(entry));
  return entry;
}

const Entry* Table::Find(EntryId id) const {
  const auto place = places_.find(id);
  return place == places_.end() ? nullptr : &entries_.at(place->second);
}

const Entry* Table::NewestOfPrompt(PromptId prompt) const {
  const auto behind = prompts_.upper_bound({prompt, std::numeric_limits<uint64_t>::max()});
  if (behind == prompts_.begin()) return nullptr;
  const auto& [found, place] = *std::prev(behind);
  return found == prompt ? &entries_.at(place) : nullptr;
}

const Entry* Table::NextToLeave() const {
  if (entries_.empty()) return nullptr;
  return evicts_lowest() ? Find(priorities_.begin()->id) : &entries_.begin()->second;
}

const Entry* Table::TooOld(LearnerStep now) const {
  if (policy_.age_max == 0 || entries_.empty()) return nullptr;
  const Entry& oldest = entries_.begin()->second;
  return replay::AgeAt(now, oldest.birth) > policy_.age_max ? &oldest : nullptr;
}

std::vector<const Entry*> Table::After(EntryId id, uint64_t limit, const Usable& usable) const {
  const auto place = places_.find(id);
  auto at = entries_.begin();
  if (ordered_by_id()) {
    at = entries_.upper_bound(id.value);
  } else if (place != places_.end()) {
    at = entries_.upper_bound(place->second);
  }
  std::vector<const Entry*> found;
  for (; at != entries_.end() && found.size() < limit; ++at) {
    if (!usable || usable(at->second)) found.push_back(&at->second);
  }
  return found;
}

std::vector<const Entry*> Table::Newest(LearnerStep step, const replay::DrawLimits& limits,
                                        EntryId after, LearnerStep after_birth, uint64_t limit,
                                        const Usable& usable) const {
  auto at = after.value == 0 ? newest_.begin() : newest_.upper_bound(NewestKey(after_birth, after));
  std::vector<const Entry*> found;
  for (; at != newest_.end() && found.size() < limit; ++at) {
    const Entry* entry = Find(at->second);
    if (!replay::Eligible(entry->birth, entry->uses, step, limits)) continue;
    if (!usable || usable(*entry)) found.push_back(entry);
  }
  return found;
}

replay::Drawn Table::Draw(LearnerStep step, uint64_t count, uint64_t seed) const {
  const auto weight = [&](const Entry& entry) {
    return policy_.draw == replay::DrawPolicy::kLearnable
               ? replay::Learnability(entry.tries - entry.tries_failed, entry.tries_failed)
               : PriorityOf(entry, step) - decay_.floor;
  };
  std::vector<EntryId> ids;
  std::vector<replay::WeightedEntry> weighted;
  std::vector<replay::ValuedEntry> valued;
  for (const auto& [_, entry] : entries_) {
    if (!replay::Eligible(entry.birth, entry.uses, step, policy_.limits)) continue;
    ids.push_back(entry.id);
    weighted.push_back({entry.id, weight(entry)});
    valued.push_back({entry.id, entry.birth, entry.value()});
  }
  const uint64_t eligible = ids.size();
  switch (policy_.draw) {
    case replay::DrawPolicy::kUniform:
      return {eligible, replay::DrawUniform(std::move(ids), count, seed, step)};
    case replay::DrawPolicy::kPriority:
    case replay::DrawPolicy::kLearnable:
      return {eligible, replay::DrawWeighted(weighted, count, seed, step)};
    case replay::DrawPolicy::kBest:
      return {eligible, replay::DrawBest(std::move(valued), count)};
    case replay::DrawPolicy::kVaried:
      return {eligible, replay::DrawVaried(std::move(valued), count)};
    case replay::DrawPolicy::kNewest:
      ids.clear();
      for (const Entry* entry : Newest(step, policy_.limits, EntryId(), {}, count)) {
        ids.push_back(entry->id);
      }
      return {eligible, std::move(ids)};
    case replay::DrawPolicy::kOldest:
      break;
  }
  ids.resize(std::min(eligible, count));
  return {eligible, std::move(ids)};
}

double Table::PriorityPercentile(uint64_t percent, LearnerStep now) const {
  if (entries_.empty()) return 0;
  const uint64_t rank = std::max<uint64_t>(1, (size() * percent + 99) / 100) - 1;
  if (sums_.AllBorn(now)) return PriorityOf(*Find(priorities_.find_by_order(rank)->id), now);
  std::vector<double> priorities;
  for (const auto& [_, entry] : entries_) priorities.push_back(PriorityOf(entry, now));
  const auto at = priorities.begin() + static_cast<ptrdiff_t>(rank);
  std::nth_element(priorities.begin(), at, priorities.end());
  return *at;
}

double Table::PriorityOf(const Entry& entry, LearnerStep now) const {
  return replay::PriorityAt(decay_, entry.value(), replay::AgeAt(now, entry.birth));
}

}  // namespace oxbow::buffer
