// SPDX-License-Identifier: Apache-2.0
#include "core/rl/advantage.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/statistics.h"

namespace oxbow::rl {
namespace {

constexpr double kGdpoFloor = 1e-6;

std::vector<double> Scored(const std::vector<std::optional<double>>& rewards) {
  std::vector<double> scored;
  for (const auto& reward : rewards) {
    if (reward.has_value()) scored.push_back(*reward);
  }
  return scored;
}

std::vector<double> ScoredOfAll(const GroupRewards& rewards) {
  std::vector<double> everything;
  for (const auto& group : rewards) {
    const std::vector<double> scored = Scored(group);
    everything.insert(everything.end(), scored.begin(), scored.end());
  }
  return everything;
}

// Compares values, not the rounded standard deviation: eight times .1 must count as equal.
bool Differ(const std::vector<double>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end();
}

double DivisorOf(const AdvantageOptions& options, double std) {
  switch (options.divisor) {
    case AdvantageDivisor::kPlusEpsilon:
      return std + options.epsilon;
    case AdvantageDivisor::kFloor:
    case AdvantageDivisor::kSoftFloor:
      return std::max(std, options.epsilon);
    case AdvantageDivisor::kRoot:
      return std::sqrt(std * std + options.epsilon);
  }
  OXBOW_CHECK(false) << "advantage divisor " << static_cast<int>(options.divisor);
}

// The rewards in the mean of group `g`: scored ones that are not `outside`; all if none is left.
std::vector<double> InMean(const GroupRewards& rewards, const GroupMarks& outside, size_t g) {
  std::vector<double> inside;
  for (size_t s = 0; s < rewards[g].size() && !outside.empty(); ++s) {
    if (rewards[g][s].has_value() && !outside[g][s]) inside.push_back(*rewards[g][s]);
  }
  return inside.empty() ? Scored(rewards[g]) : inside;
}

// (R - mean_g) / divisor, not limited.
std::vector<GroupAdvantages> Normalised(const GroupRewards& rewards,
                                        const AdvantageOptions& options,
                                        const GroupMarks& outside) {
  const double global_std = StandardDeviation(ScoredOfAll(rewards), options.ddof);
  std::vector<GroupAdvantages> result;
  result.reserve(rewards.size());
  for (size_t g = 0; g < rewards.size(); ++g) {
    const auto& group = rewards[g];
    const std::vector<double> scored = Scored(group);
    GroupAdvantages out{.advantages = std::vector<double>(group.size(), 0),
                        .mean = Mean(InMean(rewards, outside, g)),
                        .std = StandardDeviation(scored, 0),
                        .has_variance = Differ(scored)};
    double divisor = 1;
    if (options.std == AdvantageStd::kGroup)
      divisor = DivisorOf(options, StandardDeviation(scored, options.ddof));
    if (options.std == AdvantageStd::kGlobal) divisor = DivisorOf(options, global_std);
    for (size_t s = 0; s < group.size() && out.has_variance; ++s) {
      if (group[s].has_value()) out.advantages[s] = (*group[s] - out.mean) / divisor;
    }
    result.push_back(std::move(out));
  }
  return result;
}

// (S - mean) / max(std, floor) over all scored samples; groups without variance stay at 0.
void NormaliseOverBatch(const GroupRewards& scored, std::vector<GroupAdvantages>& groups) {
  std::vector<double> sums;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t s = 0; s < scored[g].size(); ++s) {
      if (scored[g][s].has_value()) sums.push_back(groups[g].advantages[s]);
    }
  }
  const double mean = Mean(sums);
  const double divisor = std::max(StandardDeviation(sums, 0), kGdpoFloor);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].has_variance) continue;
    for (size_t s = 0; s < scored[g].size(); ++s) {
      if (!scored[g][s].has_value()) continue;
      groups[g].advantages[s] = (groups[g].advantages[s] - mean) / divisor;
    }
  }
}

void LimitAll(const AdvantageOptions& options, std::vector<GroupAdvantages>& groups) {
  for (GroupAdvantages& group : groups) {
    for (double& advantage : group.advantages) {
      advantage = options.divisor == AdvantageDivisor::kSoftFloor
                      ? options.clip * std::tanh(advantage / options.clip)
                      : std::clamp(advantage, -options.clip, options.clip);
    }
  }
}

}  // namespace

std::vector<GroupAdvantages> ComputeAdvantages(const GroupRewards& rewards,
                                               const AdvantageOptions& options,
                                               const GroupMarks& outside) {
  std::vector<GroupAdvantages> groups = Normalised(rewards, options, outside);
  LimitAll(options, groups);
  return groups;
}

std::vector<GroupAdvantages> MixAdvantages(RewardMix mix, const GroupRewards& total,
                                           const std::vector<WeightedRewards>& terms,
                                           const AdvantageOptions& options,
                                           const GroupMarks& outside) {
  if (mix == RewardMix::kSum) return ComputeAdvantages(total, options, outside);
  std::vector<GroupAdvantages> groups = Normalised(total, options, outside);
  for (GroupAdvantages& group : groups) {
    std::fill(group.advantages.begin(), group.advantages.end(), 0);
    group.has_variance = false;
  }
  for (const WeightedRewards& term : terms) {
    OXBOW_CHECK(term.rewards.size() == total.size()) << "rewards of " << term.rewards.size();
    const std::vector<GroupAdvantages> own = Normalised(term.rewards, options, outside);
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].has_variance = groups[g].has_variance || own[g].has_variance;
      for (size_t s = 0; s < own[g].advantages.size(); ++s) {
        groups[g].advantages[s] += term.weight * own[g].advantages[s];
      }
    }
  }
  if (mix == RewardMix::kGdpo) NormaliseOverBatch(total, groups);
  LimitAll(options, groups);
  return groups;
}

}  // namespace oxbow::rl
