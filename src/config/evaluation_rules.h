// SPDX-License-Identifier: Apache-2.0
// Whether training waits for evaluations.
#pragma once

#include <string>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// The keys by which something depends on the numbers of each evaluation. Training waits for an
// evaluation if there are any, and else goes on meanwhile.
std::vector<std::string> KeysThatAwaitEvaluations(const v1::RunConfig& config);

}  // namespace oxbow::config
