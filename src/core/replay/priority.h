// SPDX-License-Identifier: Apache-2.0
// The decayed priority of a replay entry, and a key that never changes and sorts like it.
//
// An entry of raw reward R that is `age` learner steps old has the priority
//
//   multiplicative   p(age) = floor + rate^age (R - floor)    for R > floor
//                    p(age) = floor - (floor - R) / rate^age  for R <= floor
//   subtractive      p(age) = R - rate * age
//
// Below the floor the distance to it grows at the rate at which it shrinks above: age lowers every
// reward but one that is the floor. Priority decides replacement only; advantages use the raw
// reward.
//
// Two entries keep their order for ever: at any step s the priority is an increasing function,
// which depends only on s, of the quantities below. So a sorted set keeps the order and decay
// writes nothing:
//
//   multiplicative   band 2: log(R - floor) - birth * log(rate)
//                    band 1: 0, where R is the floor
//                    band 0: -log(floor - R) - birth * log(rate), where R < floor
//   subtractive      band 0: R + rate * birth
//
// Higher bands are higher priorities.
#pragma once

#include <compare>
#include <cstdint>

#include "absl/status/status.h"
#include "base/ids.h"

namespace oxbow::replay {

enum class DecayForm { kMultiplicative, kSubtractive };

struct Decay {
  DecayForm form = DecayForm::kMultiplicative;
  double rate = 0.98;  // Factor per step in (0, 1], or amount per step >= 0.
  double floor = 0;    // Multiplicative only.
};

// kInvalidArgument unless the numbers are finite and in range.
absl::Status Validate(const Decay& decay);

// Steps from birth to `now`; 0 for what was born in a later step.
uint64_t AgeAt(LearnerStep now, LearnerStep birth);

// p(age). Never increases with age.
double PriorityAt(const Decay& decay, double reward, uint64_t age);

// Sorts entries by priority, lowest first, equal ones by id. Two entries compare as their
// priorities do at every step from the later birth on.
struct PriorityKey {
  int band = 0;
  double value = 0;
  EntryId id;

  auto operator<=>(const PriorityKey&) const = default;
};

// Requires a finite reward.
PriorityKey KeyOf(const Decay& decay, double reward, LearnerStep birth, EntryId id);

}  // namespace oxbow::replay
