// SPDX-License-Identifier: Apache-2.0
// The processes that draw evaluations, and whether training waits for them.
#pragma once

#include <string>
#include <vector>

#include "config/findings.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// The keys by which something depends on the numbers of each evaluation. Training waits for an
// evaluation that workers draw if there are any, and else goes on meanwhile.
std::vector<std::string> KeysThatAwaitEvaluations(const v1::RunConfig& config);

void DrawerRules(const v1::RunConfig& config, Findings& findings);

}  // namespace oxbow::config
