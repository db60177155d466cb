// SPDX-License-Identifier: Apache-2.0
// Torch's types of numbers, from the config's.
#pragma once

#include <c10/core/ScalarType.h>

#include "absl/status/statusor.h"
#include "core/model/policy.h"
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

}  // namespace oxbow::run
