// SPDX-License-Identifier: Apache-2.0
#include "core/replay/draw.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/philox.h"
#include "core/replay/priority.h"

namespace oxbow::replay {

bool Eligible(LearnerStep birth, uint64_t uses, LearnerStep step, const DrawLimits& limits) {
  if (birth >= step) return false;
  if (limits.uses_max > 0 && uses >= limits.uses_max) return false;
  return limits.age_max == 0 || AgeAt(step, birth) <= limits.age_max;
}

std::vector<EntryId> DrawUniform(std::vector<EntryId> eligible, uint64_t count, uint64_t seed,
                                 LearnerStep step) {
  std::sort(eligible.begin(), eligible.end());
  RandomStream random({.seed = seed, .group = step.value, .sample = 0, .step = kBufferDraw});
  const uint64_t drawn = std::min<uint64_t>(count, eligible.size());
  for (uint64_t i = 0; i < drawn; ++i) {  // The first part of a Fisher-Yates shuffle.
    std::swap(eligible[i], eligible[i + random.NextBelow(eligible.size() - i)]);
  }
  eligible.resize(drawn);
  return eligible;
}

double Learnability(uint64_t successes, uint64_t failures) {
  const double a = 1 + static_cast<double>(successes);
  const double b = 1 + static_cast<double>(failures);
  return a * b / ((a + b) * (a + b + 1));
}

std::vector<EntryId> DrawWeighted(const std::vector<WeightedEntry>& eligible, uint64_t count,
                                  uint64_t seed, LearnerStep step) {
  // Lowest first: entries without weight last, then -log(u) / w, which falls as u^(1/w) rises.
  std::vector<std::tuple<bool, double, EntryId>> order;
  order.reserve(eligible.size());
  for (const WeightedEntry& entry : eligible) {
    RandomStream random({.seed = Mix64(seed ^ Mix64(entry.id.value)),
                         .group = step.value,
                         .sample = 1,
                         .step = kBufferDraw});
    const bool unweighted = !(entry.weight > 0);
    const double exponential = -std::log1p(-random.NextUniform());
    order.emplace_back(unweighted, exponential / (unweighted ? 1 : entry.weight), entry.id);
  }
  const auto drawn = static_cast<std::ptrdiff_t>(std::min<uint64_t>(count, order.size()));
  std::partial_sort(order.begin(), order.begin() + drawn, order.end());
  std::vector<EntryId> ids;
  for (std::ptrdiff_t i = 0; i < drawn; ++i) ids.push_back(std::get<EntryId>(order[i]));
  return ids;
}

}  // namespace oxbow::replay
