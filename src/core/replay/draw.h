// SPDX-License-Identifier: Apache-2.0
// The entries that a learner step replays: without replacement, uniform or by weight; a function of
// the entries, seed and step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace oxbow::replay {

// The result of a draw for a step.
struct Drawn {
  uint64_t eligible = 0;
  std::vector<EntryId> entries;  // In the order of the draw.
  bool operator==(const Drawn&) const = default;
};

struct DrawLimits {
  uint64_t uses_max = 0;  // 0: unlimited.
  uint64_t age_max = 0;   // Steps; 0: unlimited.
};

// Whether an entry may be drawn for `step`: born before it, used fewer than uses_max times, at most
// age_max steps old.
bool Eligible(LearnerStep birth, uint64_t uses, LearnerStep step, const DrawLimits& limits);

// min(count, eligible.size()) different ids, every subset and order equally likely. The order of
// `eligible` does not matter; its ids must differ. The same arguments give the same result
// everywhere.
std::vector<EntryId> DrawUniform(std::vector<EntryId> eligible, uint64_t count, uint64_t seed,
                                 LearnerStep step);

// The signal that a group may be expected to have from a head that was sampled again so often with
// and without success: the mean of p (1 - p) where p ~ Beta(1 + successes, 1 + failures),
//
//   a b / ((a + b) (a + b + 1)),   a = 1 + successes, b = 1 + failures
//
// 1/6 of a head that nobody has tried; it tends to p (1 - p) (DOTS, arXiv:2506.05316).
double Learnability(uint64_t successes, uint64_t failures);

struct WeightedEntry {
  EntryId id;
  double weight = 0;
};

// min(count, eligible.size()) different ids, drawn one after another with probabilities
// proportional to the weights of those that are left: the largest of u^(1/w), u uniform (Efraimidis
// and Spirakis 2006). Entries of weight 0 or below come after all others, equally likely. An
// entry's u depends only on seed, step and its id, so two entries keep their order when others
// come or go.
std::vector<EntryId> DrawWeighted(const std::vector<WeightedEntry>& eligible, uint64_t count,
                                  uint64_t seed, LearnerStep step);

// RePO's retrieval by reward and by variance (arXiv:2506.09340) of entries with these values.
struct ValuedEntry {
  EntryId id;
  LearnerStep birth;
  double value = 0;
};

// min(count, eligible.size()) ids: the highest values first. Of equal ones the newer comes first,
// then the lower id.
std::vector<EntryId> DrawBest(std::vector<ValuedEntry> eligible, uint64_t count);

// As many: the subset whose values have the greatest variance; of several such the one with the
// greatest sum. In the order of DrawBest. The best subset of size k has the k - j highest and the j
// lowest values, for some j.
std::vector<EntryId> DrawVaried(std::vector<ValuedEntry> eligible, uint64_t count);

}  // namespace oxbow::replay
