// SPDX-License-Identifier: Apache-2.0
// Rules of the `method` section: which settings a method has, on which scale, and what it needs
// from the other sections. What differs from method to method is in its row
// (core/rl/method_facts.h).
#pragma once

#include "config/findings.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

void MethodRules(const v1::RunConfig& c, Findings& f);

// Rules for settings of methods that train on final images, and for each method's own section.
void ForwardProcessRules(const v1::RunConfig& c, Findings& f);

}  // namespace oxbow::config
