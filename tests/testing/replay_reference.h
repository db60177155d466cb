// SPDX-License-Identifier: Apache-2.0
// The rules of the replay store as plain lists, for its model-based test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/replay/draw.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {

using replay::DrawPolicy;
using replay::InsertPolicy;
using replay::TablePolicy;

inline constexpr uint64_t kRemembered = 20;
inline constexpr uint64_t kUsesMax = 3;
inline constexpr uint64_t kAgeMax = 12;
inline constexpr char kPrompts[] = "prompts";  // Entries without latents.

inline std::vector<TablePolicy> Policies(DrawPolicy draw) {
  return {replay::BestTable(7, draw, {.uses_max = kUsesMax, .age_max = kAgeMax}),
          {.name = kPrompts, .insert = InsertPolicy::kAppendPerPrompt, .capacity = 5},
          {.name = "groups", .draw = DrawPolicy::kUniform, .capacity = 7, .age_max = 4}};
}

struct Plain {
  uint64_t id = 0, prompt = 0, birth = 0, uses = 0, last_used = 0;
  double reward = 0;  // The newest one.
  uint64_t failures = 0;
  uint64_t tries = 0, tries_failed = 0;
};

struct Regeneration {
  double reward = 0;
  bool taken = false;  // The entry counts the new reward.
  bool failed = false;
};

inline std::vector<uint64_t> Values(const std::vector<EntryId>& ids) {
  std::vector<uint64_t> values;
  for (const EntryId id : ids) values.push_back(id.value);
  return values;
}

// The rules, one sentence each, without any of the store's structures.
struct Reference {
  replay::Decay decay;
  std::vector<TablePolicy> policies;
  uint64_t step = 0;
  std::map<std::string, std::vector<Plain>> tables;  // Best by id, queues by arrival.
  std::map<uint64_t, Plain> held;                    // Dropped while drawn.
  std::map<uint64_t, uint64_t> offered;              // Ever decided: the step of it or the birth.
  uint64_t forgotten = 0;                            // Ids of steps before it may be unknown.
  std::map<uint64_t, std::vector<uint64_t>> draws;   // From best, of steps that did not commit.

  double Priority(const Plain& entry, uint64_t now) const {
    const uint64_t age = now > entry.birth ? now - entry.birth : 0;
    if (decay.form == replay::DecayForm::kSubtractive) {
      return entry.reward - decay.rate * static_cast<double>(age);
    }
    if (age == 0) return entry.reward;
    const double kept = std::pow(decay.rate, static_cast<double>(age));
    const double distance = entry.reward - decay.floor;
    return decay.floor + (distance > 0 ? distance * kept : distance / kept);
  }

  // The mean of p less that of its square, where p ~ Beta(1 + successes, 1 + failures).
  static double Learnability(const Plain& entry) {
    const double a = 1 + static_cast<double>(entry.tries - entry.tries_failed);
    const double n = 2 + static_cast<double>(entry.tries);
    return a / n - a / n * (a + 1) / (n + 1);
  }

  // From best the lowest once all are born, equal ones by id; from a queue the oldest.
  uint64_t NextToLeave(const TablePolicy& policy) {
    const std::vector<Plain>& table = tables[policy.name];
    if (policy.evict == replay::EvictPolicy::kOldest) return table[0].id;
    uint64_t now = step;
    for (const Plain& entry : table) now = std::max(now, entry.birth);
    const Plain* lowest = &table[0];
    for (const Plain& entry : table) {
      if (Priority(entry, now) < Priority(*lowest, now) - 1e-12) lowest = &entry;
    }
    return lowest->id;
  }

  bool Drawn(uint64_t id) const {
    return std::any_of(draws.begin(), draws.end(), [id](const auto& draw) {
      return std::count(draw.second.begin(), draw.second.end(), id) > 0;
    });
  }

  bool Has(uint64_t id) const {
    return held.count(id) > 0 || std::any_of(tables.begin(), tables.end(), [id](const auto& table) {
             return std::any_of(table.second.begin(), table.second.end(),
                                [id](const Plain& entry) { return entry.id == id; });
           });
  }

  // Everything of steps from `to` on is gone.
  void Rewind(uint64_t to) {
    draws.clear();
    held.clear();
    for (auto& [_, table] : tables) {
      std::erase_if(table, [to](const Plain& entry) { return entry.birth >= to; });
    }
    std::erase_if(offered, [to](const auto& id) { return id.second >= to; });
    forgotten = std::min(forgotten, to);
    step = to;
  }

  void Drop(uint64_t id) {
    for (auto& [_, table] : tables) {
      for (const Plain& entry : table) {
        if (entry.id == id && Drawn(id)) held[id] = entry;
      }
      std::erase_if(table, [id](const Plain& entry) { return entry.id == id; });
    }
  }

  void Trim() {
    for (const TablePolicy& policy : policies) {
      while (tables[policy.name].size() > policy.capacity) Drop(NextToLeave(policy));
    }
  }

  Outcome Offer(const TablePolicy& policy, const Plain& entry, uint64_t& replaced) {
    if (offered.count(entry.id) > 0 || Has(entry.id)) return Outcome::kDuplicate;
    if (step > entry.birth && step - entry.birth > kRemembered) return Outcome::kRejectedInvalid;
    if (entry.birth < forgotten) return Outcome::kRejectedInvalid;
    offered[entry.id] = std::max(step, entry.birth);
    std::vector<Plain>& table = tables[policy.name];
    const bool better = policy.insert == InsertPolicy::kBetter;
    std::optional<uint64_t> rival;
    for (const Plain& other : table) {
      if (other.prompt == entry.prompt && policy.insert != InsertPolicy::kAppend) rival = other.id;
    }
    if (!rival.has_value() && better && table.size() >= policy.capacity)
      rival = NextToLeave(policy);
    if (rival.has_value()) {
      const auto other = std::find_if(table.begin(), table.end(),
                                      [&](const Plain& plain) { return plain.id == *rival; });
      if (better && !(entry.reward > Priority(*other, step))) return Outcome::kRejectedLower;
      Drop(*rival);
      replaced = *rival;
    }
    table.push_back(entry);
    if (better) {
      std::sort(table.begin(), table.end(),
                [](const Plain& a, const Plain& b) { return a.id < b.id; });
    }
    Trim();
    return rival.has_value() ? Outcome::kReplaced : Outcome::kInserted;
  }

  std::vector<EntryId> Eligible(const TablePolicy& policy, uint64_t at) {
    std::vector<EntryId> ids;
    for (const Plain& entry : tables[policy.name]) {
      if (entry.birth >= at) continue;
      const bool worn = policy.limits.uses_max > 0 && entry.uses >= policy.limits.uses_max;
      const bool old = policy.limits.age_max > 0 && at - entry.birth > policy.limits.age_max;
      if (!worn && !old) ids.push_back(EntryId(entry.id));
    }
    return ids;
  }

  std::vector<uint64_t> Draw(const TablePolicy& policy, uint64_t at, uint64_t count,
                             uint64_t seed) {
    std::vector<EntryId> ids = Eligible(policy, at);
    if (policy.draw == DrawPolicy::kUniform) {
      return Values(replay::DrawUniform(ids, count, seed, LearnerStep(at)));
    }
    if (policy.draw == DrawPolicy::kOldest) {
      ids.resize(std::min<size_t>(ids.size(), count));
      return Values(ids);
    }
    if (policy.draw == DrawPolicy::kNewest) {
      std::map<EntryId, uint64_t> births;
      for (const Plain& entry : tables[policy.name]) births[EntryId(entry.id)] = entry.birth;
      std::sort(ids.begin(), ids.end(), [&](EntryId a, EntryId b) {
        return std::pair(births.at(b), a) < std::pair(births.at(a), b);
      });
      ids.resize(std::min<size_t>(ids.size(), count));
      return Values(ids);
    }
    if (policy.draw == DrawPolicy::kBest || policy.draw == DrawPolicy::kVaried) {
      std::vector<replay::ValuedEntry> valued;
      for (const Plain& entry : tables[policy.name]) {
        if (std::count(ids.begin(), ids.end(), EntryId(entry.id)) == 0) continue;
        valued.push_back({EntryId(entry.id), LearnerStep(entry.birth), entry.reward});
      }
      return Values(policy.draw == DrawPolicy::kBest ? replay::DrawBest(valued, count)
                                                     : replay::DrawVaried(valued, count));
    }
    std::vector<replay::WeightedEntry> weighted;
    for (const Plain& entry : tables[policy.name]) {
      if (std::count(ids.begin(), ids.end(), EntryId(entry.id)) == 0) continue;
      weighted.push_back({EntryId(entry.id), policy.draw == DrawPolicy::kLearnable
                                                 ? Learnability(entry)
                                                 : Priority(entry, at) - decay.floor});
    }
    return Values(replay::DrawWeighted(weighted, count, seed, LearnerStep(at)));
  }

  void Advance(uint64_t committed, const std::set<uint64_t>& used, const std::set<uint64_t>& evict,
               const std::map<uint64_t, Regeneration>& again = {}, uint64_t failures_max = 0) {
    if (committed + 1 == step) return;
    const auto count_use = [&](Plain& entry) {
      if (used.count(entry.id) == 0) return;
      ++entry.uses;
      entry.last_used = committed;
    };
    for (auto& [_, table] : tables) std::for_each(table.begin(), table.end(), count_use);
    for (auto& [_, entry] : held) count_use(entry);
    step = committed + 1;
    if (step > kRemembered) forgotten = std::max(forgotten, step - kRemembered);
    std::erase_if(draws, [&](const auto& draw) { return draw.first <= committed; });
    std::erase_if(held, [&](const auto& entry) { return !Drawn(entry.first); });
    std::set<uint64_t> leave = evict;
    for (auto& [_, table] : tables) {
      for (Plain& entry : table) {
        const auto found = again.find(entry.id);
        if (found == again.end()) continue;
        if (found->second.taken) entry.reward = found->second.reward;
        entry.failures = found->second.failed ? entry.failures + 1 : 0;
        ++entry.tries;
        entry.tries_failed += found->second.failed ? 1 : 0;
        if (failures_max > 0 && entry.failures >= failures_max) leave.insert(entry.id);
      }
    }
    for (const uint64_t id : leave) Drop(id);
    for (const TablePolicy& policy : policies) {
      std::vector<Plain>& table = tables[policy.name];
      while (policy.age_max > 0 && !table.empty() && step > table[0].birth + policy.age_max) {
        Drop(table[0].id);
      }
    }
  }
};

}  // namespace oxbow::buffer
