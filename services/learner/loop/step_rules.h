// SPDX-License-Identifier: Apache-2.0
// The rules by which the steps of a run get their groups, as its config says.
#pragma once

#include "core/rl/batch_adaptation.h"
#include "services/learner/plan/step_rule.h"
#include "services/learner/run_setup.h"

namespace oxbow::learner {

rl::BatchAdaptation AdaptationOf(const v1::AdaptationConfig& config);

// Goes on from the state of a checkpoint. `buffer` may be null. All but `from` outlive the rules.
StepRules RulesOf(const RunSetup& setup, const RunState& from, PromptOrder& prompts,
                  ConditioningCache& conditioning, ReplayLink* buffer);

}  // namespace oxbow::learner
