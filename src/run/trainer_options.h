// SPDX-License-Identifier: Apache-2.0
// The trainer's options and types of numbers, from a run's config. Pure.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "config/validate.h"
#include "core/flow/dynamics.h"
#include "core/flow/window.h"
#include "core/model/policy.h"
#include "core/rl/options.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// kInvalidArgument for STORAGE_D_TYPE_UNSPECIFIED, with the setting's name `key`.
absl::StatusOr<at::ScalarType> ScalarTypeFromConfig(v1::StorageDType dtype, const char* key);

// The type in which latents are stored and sent: sampling.storage.
absl::StatusOr<at::ScalarType> StorageFromConfig(const v1::SamplingConfig& config);

// How the frozen weights of a LoRA are kept.
model::BaseWeights BaseWeightsOf(const v1::ModelConfig& config);

// The text encoders': float32 unless it is bf16.
at::ScalarType EncoderType(const v1::ModelConfig& config);

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

// Whether the ranks of a machine keep the weights of a full fine-tune in host memory once.
bool SharesWeights(const v1::RunConfig& config);

// Whether the reference ever becomes the policy. A LoRA then needs an adapter for it.
bool MovesReference(const v1::RunConfig& config);

// method.old_log_prob, with `auto` decided: whether the clip's centre of on-policy rows is a
// forward pass of the learner. That costs one pass a sample. It is needed where the clip range is
// at most ten times what a log-prob differs between worker and learner: on CPUs in float32 they are
// equal.
bool RecomputesOldLogProbs(const v1::RunConfig& config);

// The error of on-policy ratios beyond which something is wrong; see train/onpolicy_ratio_limit.
double OnPolicyRatioLimit(const v1::RunConfig& config);

// The steps that i_off leaves to train, where samples may be off-policy. They depend on the model's
// noise levels, so they are known only once a model's facts are.
//
// i_off, from the config or the rule kc < kept_kc_max over all steps that may be stochastic: a
// replayed head ends there, or after its last stochastic step before.
int KeptStepsOf(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

// An error where no step is left though the run replays or trains stale samples: every one of them
// would train nothing. Warnings where stale samples lose a part of their steps, and where some
// windows give the buffer nothing. Requires a valid config.
std::vector<config::Problem> CheckKeptSteps(const v1::RunConfig& config,
                                            const flow::SamplingSpec& sampling);

}  // namespace oxbow::run
