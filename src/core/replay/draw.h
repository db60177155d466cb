// Which entries a learner step replays: without replacement, uniform or by priority; a function of
// seed and step alone.
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

struct WeightedEntry {
  EntryId id;
  double weight = 0;
};

// min(count, eligible.size()) different ids, drawn one after another with probabilities
// proportional to the weights of those that are left: the largest of u^(1/w), u uniform (Efraimidis
// and Spirakis 2006). Entries of weight 0 or below come after all others, equally likely. An
// entry's u depends on seed, step and its id, so others' coming and going moves no entry past
// another.
std::vector<EntryId> DrawWeighted(const std::vector<WeightedEntry>& eligible, uint64_t count,
                                  uint64_t seed, LearnerStep step);

}  // namespace oxbow::replay
