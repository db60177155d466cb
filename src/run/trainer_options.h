// SPDX-License-Identifier: Apache-2.0
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

// Whether a loss reads the model as it was at the start: the KL's term or the anchor's. A full
// fine-tune then keeps a copy of the trained weights; a LoRA needs none.
bool ReadsReference(const v1::MethodConfig& method);

// Whether the reference ever becomes the policy. A LoRA then needs an adapter for it.
bool MovesReference(const v1::RunConfig& config);

// method.old_log_prob, with `auto` decided: whether the clip's centre of on-policy rows is a
// forward pass of the learner. That costs one pass a sample. It is needed where the clip range is
// at most ten times what a log-prob differs between worker and learner: on CPUs in float32 they are
// equal.
bool RecomputesOldLogProbs(const v1::RunConfig& config);

// The error of on-policy ratios beyond which something is wrong; see train/onpolicy_ratio_limit.
double OnPolicyRatioLimit(const v1::RunConfig& config);

}  // namespace oxbow::run
