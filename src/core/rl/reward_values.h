// SPDX-License-Identifier: Apache-2.0
// The numbers of a sample that advantages are of.
#pragma once

#include <functional>
#include <vector>

#include "core/rl/experience.h"
#include "core/rl/options.h"

namespace oxbow::rl {

using RewardValue = std::function<double(const Trajectory&)>;

// The rewards of a group's samples as the options value them: rare ones count more where the
// rewards of the group differ. Without that the reward says nothing of the group, and what is rare
// in it must not train it.
RewardValue ValueIn(const TrainerOptions& options, const Group& group);

struct WeightedValue {
  double weight = 1;
  RewardValue value;
};

// The single rewards of a sample, where every one has an advantage of its own (RewardMix); else
// none.
std::vector<WeightedValue> SingleValues(const TrainerOptions& options);

}  // namespace oxbow::rl
