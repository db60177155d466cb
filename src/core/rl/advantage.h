// SPDX-License-Identifier: Apache-2.0
// How much better than its group a sample did: A = (R - mean_g) / divisor(std), clipped.
//
// In float64. Samples whose reward failed count in no statistic: a failure is not a reward of zero.
// Published rules, by their settings:
//
//   Flow-GRPO (arXiv:2505.05470, eq. 3)   group or global std, ddof 0, std + 1e-4
//   DanceGRPO (arXiv:2505.07818)          group std, ddof 1, std + 1e-8
//   off-policy GRPO (arXiv:2505.22257)    sqrt(var + epsilon)
//   Dr. GRPO (arXiv:2503.20783)           no division
//   V-GRPO                                max(std, 1e-6), c tanh(A / c)
//   GDPO                                  every reward by itself, their weighted sum over the batch
#pragma once

#include <optional>
#include <vector>

namespace oxbow::rl {

enum class AdvantageStd { kGroup, kGlobal, kNone };  // kGlobal: over all scored samples.
// s + e, max(s, e), sqrt(s^2 + e); kSoftFloor: as kFloor, and c tanh(A / c) in place of the limit.
enum class AdvantageDivisor { kPlusEpsilon, kFloor, kRoot, kSoftFloor };

// How several rewards become one advantage.
enum class RewardMix {
  kSum,   // Their weighted sum is the reward.
  kEach,  // The weighted sum of the advantages that each reward gives.
  kGdpo,  // As kEach, then (S - mean) / max(std, 1e-6) over the scored samples of the whole step.
};

struct AdvantageOptions {
  AdvantageStd std = AdvantageStd::kGroup;
  int ddof = 0;  // 1: the sample standard deviation.
  AdvantageDivisor divisor = AdvantageDivisor::kPlusEpsilon;
  double epsilon = 1e-4;
  double clip = 5;  // The limit on both sides.
};

// [group][sample]; a missing reward is a failed one.
using GroupRewards = std::vector<std::vector<std::optional<double>>>;

// [group][sample]; empty: none.
using GroupMarks = std::vector<std::vector<bool>>;

struct WeightedRewards {
  double weight = 1;
  GroupRewards rewards;
};

struct GroupAdvantages {
  std::vector<double> advantages;  // One per sample; 0 for failed samples.
  double mean = 0;                 // Rewards are compared with it.
  double std = 0;                  // Population, of the scored rewards.
  bool has_variance = false;  // Two scored rewards differ. Without it there is nothing to learn.
};

// One entry per group. All advantages of a group without variance are exactly 0. Rewards of
// `outside` samples do not count in their group's mean; in its spread they do, since without them a
// group of failures has none.
std::vector<GroupAdvantages> ComputeAdvantages(const GroupRewards& rewards,
                                               const AdvantageOptions& options,
                                               const GroupMarks& outside = {});

// The same for several rewards. `total` is their weighted sum: kSum uses it, and mean and std are
// computed from it. Requires equally shaped tables; a group has variance if any of its rewards has.
std::vector<GroupAdvantages> MixAdvantages(RewardMix mix, const GroupRewards& total,
                                           const std::vector<WeightedRewards>& terms,
                                           const AdvantageOptions& options,
                                           const GroupMarks& outside = {});

}  // namespace oxbow::rl
