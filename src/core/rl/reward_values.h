// SPDX-License-Identifier: Apache-2.0
// The numbers of a sample that advantages are of.
#pragma once

#include <functional>
#include <vector>

#include "core/rl/experience.h"
#include "core/rl/options.h"

namespace oxbow::rl {

// The reward of a sample as the options value it.
double Valued(const TrainerOptions& options, const Trajectory& trajectory);

struct WeightedValue {
  double weight = 1;
  std::function<double(const Trajectory&)> value;
};

// The single rewards of a sample, where every one has an advantage of its own (RewardMix); else
// none.
std::vector<WeightedValue> SingleValues(const TrainerOptions& options);

}  // namespace oxbow::rl
