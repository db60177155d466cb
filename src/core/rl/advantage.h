// How much better than its group a sample did: A = (R - mean_g) / (std + epsilon), clipped.
//
// Float64, population standard deviation (Flow-GRPO, arXiv:2505.05470, eq. 3). Samples whose reward
// failed are no part of any statistic: a failure is not a reward of zero.
#pragma once

#include <optional>
#include <vector>

namespace oxbow::rl {

enum class AdvantageStd { kGroup, kGlobal, kNone };

struct AdvantageOptions {
  AdvantageStd std = AdvantageStd::kGroup;  // kGlobal: over all scored samples; kNone: no division.
  int ddof = 0;                             // 1: the sample standard deviation (DanceGRPO).
  double epsilon = 1e-4;                    // Added to the standard deviation.
  double clip = 5;                          // Advantages lie in [-clip, clip].
};

struct GroupAdvantages {
  std::vector<double> advantages;  // One per sample; 0 for failed samples.
  double mean = 0;                 // Of the scored rewards.
  double std = 0;                  // Population, of the scored rewards.
  bool has_variance = false;  // Two scored rewards differ. Without it there is nothing to learn.
};

// One entry per group; a missing reward is a failed one. All advantages of a group without variance
// are exactly 0.
std::vector<GroupAdvantages> ComputeAdvantages(
    const std::vector<std::vector<std::optional<double>>>& rewards,
    const AdvantageOptions& options);

}  // namespace oxbow::rl
