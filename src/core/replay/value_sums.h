// SPDX-License-Identifier: Apache-2.0
// Means and extremes over the entries of a table, without a walk over them: sums per step of birth.
//
// A mean costs one term for each step in which an entry was born that is still there, however many
// entries there are. A sum is that of the entries added and not removed, but for rounding: a
// relative error of about 1e-15 for each change of its step of birth, and none once all of the step
// have left.
#pragma once

#include <cstdint>
#include <map>

#include "base/ids.h"
#include "core/replay/priority.h"

namespace oxbow::replay {

class ValueSums {
 public:
  explicit ValueSums(const Decay& decay) : decay_(decay) {}

  // An entry of reward `value`, born in `birth`. Requires a finite value.
  void Add(double value, LearnerStep birth);
  // Requires that it was added.
  void Remove(double value, LearnerStep birth);

  uint64_t size() const { return size_; }
  // All 0 of nothing.
  double RewardMean() const;
  double PriorityMean(LearnerStep now) const;  // As PriorityAt, but for rounding.
  double AgeMean(LearnerStep now) const;
  uint64_t AgeMax(LearnerStep now) const;
  // Whether all were born by `now`: then keys sort as priorities do.
  bool AllBorn(LearnerStep now) const;

 private:
  struct Born {
    uint64_t entries = 0;
    double reward = 0;
    double above = 0;  // Distances to the floor.
    double below = 0;
  };
  double PrioritySum(const Born& born, uint64_t age) const;

  const Decay decay_;
  uint64_t size_ = 0;
  std::map<LearnerStep, Born> births_;
};

}  // namespace oxbow::replay
