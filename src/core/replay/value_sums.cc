// SPDX-License-Identifier: Apache-2.0
#include "core/replay/value_sums.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace oxbow::replay {

void ValueSums::Add(double value, LearnerStep birth) {
  Born& born = births_[birth];
  ++born.entries;
  ++size_;
  born.reward += value;
  born.above += std::max(0., value - decay_.floor);
  born.below += std::max(0., decay_.floor - value);
}

void ValueSums::Remove(double value, LearnerStep birth) {
  const auto found = births_.find(birth);
  OXBOW_CHECK(found != births_.end()) << "nothing was born in " << birth;
  Born& born = found->second;
  --size_;
  if (--born.entries == 0) {
    births_.erase(found);
    return;
  }
  born.reward -= value;
  born.above -= std::max(0., value - decay_.floor);
  born.below -= std::max(0., decay_.floor - value);
}

double ValueSums::RewardMean() const {
  double sum = 0;
  for (const auto& [_, born] : births_) sum += born.reward;
  return size_ == 0 ? 0 : sum / static_cast<double>(size_);
}

double ValueSums::PrioritySum(const Born& born, uint64_t age) const {
  const auto steps = static_cast<double>(age);
  const auto entries = static_cast<double>(born.entries);
  if (decay_.form == DecayForm::kSubtractive) return born.reward - entries * decay_.rate * steps;
  if (age == 0) return born.reward;
  const double kept = std::pow(decay_.rate, steps);
  // The error that rounding leaves of no distance must not be blown up.
  const double below = born.below > 1e-12 * entries ? born.below / kept : 0;
  return entries * decay_.floor + born.above * kept - below;
}

double ValueSums::PriorityMean(LearnerStep now) const {
  double sum = 0;
  for (const auto& [birth, born] : births_) sum += PrioritySum(born, AgeAt(now, birth));
  return size_ == 0 ? 0 : sum / static_cast<double>(size_);
}

double ValueSums::AgeMean(LearnerStep now) const {
  double sum = 0;
  for (const auto& [birth, born] : births_) {
    sum += static_cast<double>(born.entries) * static_cast<double>(AgeAt(now, birth));
  }
  return size_ == 0 ? 0 : sum / static_cast<double>(size_);
}

uint64_t ValueSums::AgeMax(LearnerStep now) const {
  return births_.empty() ? 0 : AgeAt(now, births_.begin()->first);
}

bool ValueSums::AllBorn(LearnerStep now) const {
  return births_.empty() || births_.rbegin()->first <= now;
}

}  // namespace oxbow::replay
