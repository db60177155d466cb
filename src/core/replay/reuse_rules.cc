// SPDX-License-Identifier: Apache-2.0
#include "core/replay/reuse_rules.h"

#include <algorithm>
#include <cmath>

namespace oxbow::replay {
namespace {

constexpr double kRate = 0.4;       // How fast the running means move.
constexpr double kNoNeed = 0.25;    // z at and below which no group is mixed,
constexpr double kFullNeed = 0.75;  // and from which on all are that may be.

bool MayJoin(const StoredEntry& entry, LearnerStep step, const DrawLimits& limits,
             const std::vector<EntryId>& taken) {
  return Eligible(entry.birth, entry.uses, step, limits) &&
         std::find(taken.begin(), taken.end(), entry.id) == taken.end();
}

}  // namespace

ReuseState Followed(const ReuseState& state, double without_signal, double mean_reward) {
  return {.need = state.need + kRate * (without_signal - state.need),
          .success_rate = state.success_rate + kRate * (mean_reward - state.success_rate),
          .earlier = state.earlier};
}

ReuseState Committed(const ReuseState& before, ReuseState after, size_t ahead) {
  after.earlier = before.earlier;
  after.earlier.insert(after.earlier.begin(), before.need);
  after.earlier.resize(std::min(after.earlier.size(), ahead));
  return after;
}

double NeedFor(const ReuseState& state, LearnerStep step, uint64_t committed, size_t ahead) {
  // Steps that were committed since the plan was due.
  const uint64_t since = committed + ahead - std::min(step.value, committed + ahead);
  if (since == 0 || state.earlier.empty()) return state.need;
  return state.earlier[std::min<uint64_t>(since, state.earlier.size()) - 1];
}

uint32_t HeadsByNeed(uint32_t heads_max, double need) {
  const double share = std::clamp((need - kNoNeed) / (kFullNeed - kNoNeed), 0.0, 1.0);
  return static_cast<uint32_t>(std::lround(heads_max * share));
}

std::vector<size_t> NewestEntries(const std::vector<StoredEntry>& entries, size_t count,
                                  LearnerStep step, const DrawLimits& limits,
                                  const std::vector<EntryId>& taken) {
  std::vector<size_t> places;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (MayJoin(entries[i], step, limits, taken)) places.push_back(i);
  }
  std::sort(places.begin(), places.end(), [&](size_t a, size_t b) {
    if (entries[a].birth != entries[b].birth) return entries[b].birth < entries[a].birth;
    return entries[a].id < entries[b].id;
  });
  places.resize(std::min(places.size(), count));
  return places;
}

std::optional<size_t> EntryForFailure(const std::vector<StoredEntry>& entries, PromptId prompt,
                                      double best_reward, LearnerStep step,
                                      const DrawLimits& limits, const std::vector<EntryId>& taken) {
  std::optional<size_t> found;
  for (size_t i = 0; i < entries.size(); ++i) {
    const StoredEntry& entry = entries[i];
    if (entry.prompt != prompt || entry.reward <= best_reward) continue;
    if (!MayJoin(entry, step, limits, taken)) continue;
    const bool better = !found.has_value() || entry.reward > entries[*found].reward ||
                        (entry.reward == entries[*found].reward && entry.id < entries[*found].id);
    if (better) found = i;
  }
  return found;
}

}  // namespace oxbow::replay
