// SPDX-License-Identifier: Apache-2.0
// Rules of groups that are trees: sampling.split_steps and method.branch
// (docs/methods/branch_grpo.md).
#pragma once

#include "config/findings.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

void BranchGroupRules(const v1::RunConfig& c, Findings& f);

}  // namespace oxbow::config
