// SPDX-License-Identifier: Apache-2.0
#include "core/rl/batch_adaptation.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"
#include "base/statistics.h"

namespace oxbow::rl {
namespace {

constexpr size_t kGroupsToAdapt = 5;
constexpr double kMeanOfNoProgress = 0.2;  // q is 0 up to here and 1 from .6 above.
constexpr double kMeanRange = 0.6;
// Tells this draw from the replay buffer's of the same learner step.
constexpr uint32_t kReuse = 1;

std::vector<size_t> Reusable(const BatchAdaptation& rules, const AdaptedBatch& batch,
                             const std::vector<RecentGroup>& recent, uint64_t step) {
  std::vector<size_t> places;
  for (size_t i = 0; i < recent.size(); ++i) {
    const bool young = recent[i].step < step && step - recent[i].step <= rules.recent_steps;
    if (young && recent[i].mean >= batch.reuse_min && recent[i].mean <= batch.reuse_max) {
      places.push_back(i);
    }
  }
  return places;
}

}  // namespace

double ThresholdOf(ThresholdRule rule, ThresholdRange range, double fixed, double mean_reward,
                   size_t fresh_groups) {
  if (rule == ThresholdRule::kFixed || fresh_groups < kGroupsToAdapt) return fixed;
  const double width = range.high - range.low;
  if (rule == ThresholdRule::kLiteral) return mean_reward * width + range.low;
  const double progress = std::clamp((mean_reward - kMeanOfNoProgress) / kMeanRange, 0., 1.);
  return range.high - width * progress;
}

bool IsMixed(double mean, int group_size) {
  OXBOW_CHECK(group_size >= 2) << "group of " << group_size;
  const double one = 1. / group_size;
  return mean >= one && mean <= static_cast<double>(group_size - 1) / group_size;
}

bool IsBad(const BatchAdaptation& rules, double mean) { return mean <= rules.hard_max; }

// Where thresholds move they are fixed all the same while fresh groups are few.
bool MayBeReused(const BatchAdaptation& rules, double mean) {
  if (rules.recent_steps == 0) return false;
  const bool moves = rules.rule != ThresholdRule::kFixed;
  const double low = moves ? std::min(rules.reuse_min, kReuseMinRange.low) : rules.reuse_min;
  const double high = moves ? std::max(rules.reuse_max, kReuseMaxRange.high) : rules.reuse_max;
  return mean >= low && mean <= high;
}

bool SamplesAgain(const BatchAdaptation& rules, uint64_t step) {
  return rules.again_every > 0 && step > 0 && step % rules.again_every == 0;
}

AdaptedBatch AdaptBatch(const BatchAdaptation& rules, int group_size, size_t batch_groups,
                        const std::vector<double>& fresh, const std::vector<double>& again,
                        const std::vector<RecentGroup>& recent, uint64_t run_seed, uint64_t step) {
  const double mean = Mean(fresh);
  AdaptedBatch batch;
  batch.reuse_min = ThresholdOf(rules.rule, kReuseMinRange, rules.reuse_min, mean, fresh.size());
  batch.reuse_max = ThresholdOf(rules.rule, kReuseMaxRange, rules.reuse_max, mean, fresh.size());
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (IsMixed(fresh[i], group_size)) batch.fresh.push_back(i);
  }
  for (size_t i = 0; i < again.size(); ++i) {
    if (again[i] > rules.hard_max && again[i] < 1) batch.again.push_back(i);
  }
  const size_t taken = batch.fresh.size() + batch.again.size();
  batch.reused = Reusable(rules, batch, recent, step);
  const size_t room = std::min(batch.reused.size(), batch_groups - std::min(batch_groups, taken));
  RandomStream stream({.seed = run_seed, .group = step, .sample = kReuse, .step = kBufferDraw});
  for (size_t i = 0; i < room; ++i) {
    std::swap(batch.reused[i], batch.reused[i + stream.NextBelow(batch.reused.size() - i)]);
  }
  batch.reused.resize(room);
  return batch;
}

}  // namespace oxbow::rl
