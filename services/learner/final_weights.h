// SPDX-License-Identifier: Apache-2.0
// Writes the result of a finished run for other tools: a transformer or an adapter that diffusers
// loads.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "base/ids.h"
#include "core/model/policy.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

// Writes into `directory`:
//   full   transformer/ (averaged weights if EMA is on) and raw/transformer/
//   LoRA   pytorch_lora_weights.safetensors and peft/ (averaged), and the same in raw/
absl::Status WriteFinalWeights(const std::filesystem::path& directory, model::Policy& policy,
                               const v1::RunConfig& config,
                               const std::string& transformer_config_json, PolicyVersion version);

}  // namespace oxbow::learner
