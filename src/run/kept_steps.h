// SPDX-License-Identifier: Apache-2.0
// The steps that i_off leaves to train, where samples may be off-policy. They depend on the model's
// noise levels, so they are known only once a model's facts are.
#pragma once

#include <vector>

#include "config/validate.h"
#include "core/flow/dynamics.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// i_off, from the config or the rule kc < kept_kc_max over all steps that may be stochastic: a
// replayed head ends there, or after its last stochastic step before.
int KeptStepsOf(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

// An error where no step is left though the run replays or trains stale samples: every one of them
// would train nothing. Warnings where stale samples lose a part of their steps, and where some
// windows give the buffer nothing. Requires a valid config.
std::vector<config::Problem> CheckKeptSteps(const v1::RunConfig& config,
                                            const flow::SamplingSpec& sampling);

}  // namespace oxbow::run
