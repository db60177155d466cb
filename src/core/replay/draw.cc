#include "core/replay/draw.h"

#include <algorithm>
#include <utility>

#include "base/philox.h"
#include "core/replay/priority.h"

namespace oxbow::replay {

bool Eligible(const EntryFacts& entry, LearnerStep step, const DrawLimits& limits) {
  if (entry.birth >= step) return false;
  if (limits.uses_max > 0 && entry.uses >= limits.uses_max) return false;
  return limits.age_max == 0 || AgeAt(step, entry.birth) <= limits.age_max;
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

}  // namespace oxbow::replay
