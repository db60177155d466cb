// SPDX-License-Identifier: Apache-2.0
// The learner of the fleet: the product's coordinator, sinks, ranks and weight channel. A step's
// "training" is that each rank checks the content of the groups it holds.
//
//   rank 0     plans, takes groups, announces the step, waits for the word of all ranks, commits
//   rank r     takes the groups that the manifest names, and says whether they were what they must
//
// Committed steps are lines of DIRECTORY/steps: "step=3 groups=100 expired=2 discarded=0". A
// learner that starts again goes on after the last one.
#pragma once

#include <filesystem>

#include "bench/fleet/load.h"

namespace oxbow::bench {

inline constexpr int kRankLost = 5;  // Exit code: start all ranks again.

std::filesystem::path StepsFile(const Load& load);

// Return the exit code.
int RunLeader(const Load& load);
int RunMember(const Load& load);

}  // namespace oxbow::bench
