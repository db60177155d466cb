// SPDX-License-Identifier: Apache-2.0
// The synthetic task that measures what a run has trained.
#pragma once

#include <string>

#include "core/reward/synthetic_task.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

// The task of a run's prompts, if the run trains on rewards of that task alone and has them from
// its own servers. Null: the run's own rewards measure it.
const reward::SyntheticTask* MeasuredTask(const v1::RewardConfig& reward,
                                          const std::string& prompt);

}  // namespace oxbow::cli
