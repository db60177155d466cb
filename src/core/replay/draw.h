// Which entries a learner step replays: uniform without replacement, a function of seed and step
// alone.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "core/replay/entry_facts.h"

namespace oxbow::replay {

struct DrawLimits {
  uint64_t uses_max = 0;  // 0: unlimited.
  uint64_t age_max = 0;   // Steps; 0: unlimited.
};

// Born before `step`, used fewer than uses_max times, at most age_max steps old.
bool Eligible(const EntryFacts& entry, LearnerStep step, const DrawLimits& limits);

// min(count, eligible.size()) different ids, every subset and order equally likely. The order of
// `eligible` does not matter; its ids must differ. The same arguments give the same result
// everywhere.
std::vector<EntryId> DrawUniform(std::vector<EntryId> eligible, uint64_t count, uint64_t seed,
                                 LearnerStep step);

}  // namespace oxbow::replay
