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

namespace {

void SortBest(std::vector<ValuedEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const ValuedEntry& a, const ValuedEntry& b) {
    return std::tuple(-a.value, b.birth, a.id) < std::tuple(-b.value, a.birth, b.id);
  });
}

std::vector<EntryId> IdsOf(const std::vector<ValuedEntry>& entries) {
  std::vector<EntryId> ids;
  for (const ValuedEntry& entry : entries) ids.push_back(entry.id);
  return ids;
}

// k^2 times the variance of k values.
double Spread(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  const auto count = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (count * value - sum) * (count * value - sum);
  return squares / count;
}

}  // namespace

std::vector<EntryId> DrawBest(std::vector<ValuedEntry> eligible, uint64_t count) {
  SortBest(eligible);
  eligible.resize(std::min<size_t>(count, eligible.size()));
  return IdsOf(eligible);
}

std::vector<EntryId> DrawVaried(std::vector<ValuedEntry> eligible, uint64_t count) {
  SortBest(eligible);
  const size_t size = std::min<size_t>(count, eligible.size());
  std::vector<ValuedEntry> chosen;
  double greatest = -1;
  for (size_t low = 0; low <= size && size > 0;
       ++low) {  // Sums fall, so the first of equals stays.
    std::vector<ValuedEntry> some(eligible.begin(),
                                  eligible.begin() + static_cast<std::ptrdiff_t>(size - low));
    some.insert(some.end(), eligible.end() - static_cast<std::ptrdiff_t>(low), eligible.end());
    std::vector<double> values;
    for (const ValuedEntry& entry : some) values.push_back(entry.value);
    const double spread = Spread(values);
    if (spread > greatest) {
      greatest = spread;
      chosen = std::move(some);
    }
  }
  return IdsOf(chosen);
}

}  // namespace oxbow::replay
