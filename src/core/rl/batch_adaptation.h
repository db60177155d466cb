// SPDX-License-Identifier: Apache-2.0
// The groups that a learner step trains on when it may choose: BAPO's batch adaptation. Pure rules
// over group means; the caller keeps the tables and samples prompts again.
//
// mu is a group's mean reward in [0, 1], G its size, B the groups of a batch:
//
//   X1  fresh groups with 1/G <= mu <= (G - 1)/G: some right, some wrong
//   X2  every m steps the present policy samples the prompts of the bad table (mu <= c1 when they
//       were drawn) again; groups with c1 < mu < 1 are kept
//   X3  min(.., B - |X1| - |X2|) groups of the last few steps with c2 <= mu <= c3, drawn at random
//
// The batch is X1, X2 and X3; after training, groups with mu <= c1 enter the bad table, a FIFO of B
// prompts, and the others the table of recent groups.
//
// Thresholds c2 and c3 may follow the mean reward r of the fresh groups between a low and a high
// value. As printed (Eq. 8) c = low + r (high - low): groups get easier as the policy improves. The
// text says the opposite, and so does the published code: c = high - q (high - low) with
// q = clamp((r - .2) / .6, 0, 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oxbow::rl {

enum class ThresholdRule { kFixed, kEasyToHard, kLiteral };

struct ThresholdRange {
  double low = 0;
  double high = 0;
};

// c under the rule; kFixed gives `fixed`. With fewer than five fresh groups their mean says too
// little, and it is `fixed` as well.
double ThresholdOf(ThresholdRule rule, ThresholdRange range, double fixed, double mean_reward,
                   size_t fresh_groups);

// The ends between which c2 and c3 follow the policy, as published.
inline constexpr ThresholdRange kReuseMinRange = {.low = 0.125, .high = 0.375};
inline constexpr ThresholdRange kReuseMaxRange = {.low = 0.375, .high = 0.75};

struct BatchAdaptation {
  double hard_max = 0.125;  // c1
  ThresholdRule rule = ThresholdRule::kFixed;
  double reuse_min = 0.375;  // c2, c3 where they are fixed.
  double reuse_max = 0.75;
  uint64_t again_every = 5;   // m; 0: never.
  size_t again_max = 32;      // Prompts sampled again at once.
  uint64_t recent_steps = 3;  // Groups of so many past learner steps may be reused.
};

// A group of the table of recent ones.
struct RecentGroup {
  uint64_t id = 0;
  uint64_t step = 0;  // The learner step that trained it first.
  double mean = 0;
};

struct AdaptedBatch {
  std::vector<size_t> fresh;  // X1, X2, X3: places in the lists that were given, rising; X3 in the
  std::vector<size_t> again;  // order of its draw.
  std::vector<size_t> reused;
  double reuse_min = 0;  // c2, c3 as they were used.
  double reuse_max = 0;
};

// Whether the group has a signal. Requires group_size >= 2.
bool IsMixed(double mean, int group_size);

// Whether the prompt belongs in the bad table.
bool IsBad(const BatchAdaptation& rules, double mean);

// Whether a group of this mean may be reused in some later step.
bool MayBeReused(const BatchAdaptation& rules, double mean);

// Whether learner step `step` samples bad prompts again.
bool SamplesAgain(const BatchAdaptation& rules, uint64_t step);

// Puts the batch of `step` together. `fresh` and `again` are group means. Draws are a function of
// (run seed, step).
AdaptedBatch AdaptBatch(const BatchAdaptation& rules, int group_size, size_t batch_groups,
                        const std::vector<double>& fresh, const std::vector<double>& again,
                        const std::vector<RecentGroup>& recent, uint64_t run_seed, uint64_t step);

}  // namespace oxbow::rl
