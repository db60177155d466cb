// The trainer's options, from a run's config. Pure.
#pragma once

#include <optional>

#include "core/flow/dynamics.h"
#include "core/flow/window.h"
#include "core/model/policy.h"
#include "core/rl/options.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// `config` is resolved and valid (config::Validate); `sampling` and `window` are what it samples
// with.
rl::TrainerOptions MakeTrainerOptions(const v1::RunConfig& config,
                                      const flow::SamplingSpec& sampling,
                                      const std::optional<flow::WindowPlan>& window);

// The copy of the policy that a method keeps.
model::OldPolicy OldPolicyOf(const v1::MethodConfig& method);

// i_off, from the config or the rule kc < kept_kc_max over all steps that may be stochastic: a
// replayed head ends there, or after its last stochastic step before.
int KeptStepsOf(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

}  // namespace oxbow::run
