// The trainer's options from a run's config. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "core/flow/dynamics.h"
#include "core/rl/trainer.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

// `config` is resolved and valid (config::Validate); `sampling` is what it samples with.
rl::TrainerOptions MakeTrainerOptions(const v1::RunConfig& config,
                                      const flow::SamplingSpec& sampling);

// i_off: transitions of a replayed head, from the config or the rule kc < kept_kc_max.
int KeptStepsOf(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

// Transitions whose latents training or replay needs: up to the last trained one, and i_off.
int TransitionsNeeded(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

}  // namespace oxbow::learner
