// SPDX-License-Identifier: Apache-2.0
#include "run/scalar_type.h"

#include "absl/strings/str_cat.h"
#include "config/memory_parts.h"

namespace oxbow::run {

absl::StatusOr<at::ScalarType> StorageFromConfig(const v1::SamplingConfig& config) {
  return ScalarTypeFromConfig(config.storage(), "sampling.storage");
}

absl::StatusOr<at::ScalarType> ScalarTypeFromConfig(v1::StorageDType dtype, const char* key) {
  switch (dtype) {
    case v1::STORAGE_D_TYPE_F32:
      return at::kFloat;
    case v1::STORAGE_D_TYPE_F16:
      return at::kHalf;
    case v1::STORAGE_D_TYPE_BF16:
      return at::kBFloat16;
    default:
      return absl::InvalidArgumentError(absl::StrCat(key, " is not set"));
  }
}

model::BaseWeights BaseWeightsOf(const v1::ModelConfig& config) {
  return config::MemoryOf(config).int8 ? model::BaseWeights::kInt8 : model::BaseWeights::kCompute;
}

at::ScalarType EncoderType(const v1::ModelConfig& config) {
  return config.encoder_dtype() == v1::STORAGE_D_TYPE_BF16 ? at::kBFloat16 : at::kFloat;
}

}  // namespace oxbow::run
