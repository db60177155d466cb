// SPDX-License-Identifier: Apache-2.0
// Rules of the forms of reuse in `replay` (docs/methods/reuse.md).
#pragma once

#include "config/findings.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

void ReuseRules(const v1::RunConfig& c, Findings& f);

}  // namespace oxbow::config
