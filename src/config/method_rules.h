// Rules of the `method` section: which settings a method has, on which scale, and what it needs of
// the others.
#pragma once

#include "config/findings.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// Its loss is a function of the log-probs of sampled transitions.
bool NeedsDensity(const v1::MethodConfig& method);

void MethodRules(const v1::RunConfig& c, Findings& f);

// Of nft, awm and v_grpo, and of what belongs to the others alone.
void ForwardProcessRules(const v1::RunConfig& c, Findings& f);

}  // namespace oxbow::config
