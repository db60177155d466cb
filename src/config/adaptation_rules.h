// SPDX-License-Identifier: Apache-2.0
// Rules of the `adaptation` section: what choosing the groups of a step needs of the run.
#pragma once

#include "config/findings.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// Says nothing where it is off.
void AdaptationRules(const v1::RunConfig& c, Findings& f);

}  // namespace oxbow::config
