// Trained weights as files that other tools load.
//
// A LoRA goes to pytorch_lora_weights.safetensors, keys `transformer.{module}.lora_A.weight`, with
// alpha / r multiplied into B and alpha = r declared: diffusers, PEFT and ComfyUI then agree on its
// strength, though each reads alpha from elsewhere or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/tensor_bytes.h"

namespace oxbow::io {

struct LoraExport {
  std::map<std::string, TensorBytes> tensors;  // `{module}.lora_A.weight`, `.lora_B.weight`; F32.
  int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> targets;
  std::map<std::string, std::string> provenance;  // Run, step, base model: ignored by loaders.
};

// Writes DIRECTORY/pytorch_lora_weights.safetensors. kInvalidArgument if a tensor is no F32 LoRA
// matrix.
absl::Status WriteDiffusersLora(const std::filesystem::path& directory, const LoraExport& lora);

// Writes DIRECTORY/transformer/{config.json,diffusion_pytorch_model.safetensors}: all weights.
absl::Status WriteTransformer(const std::filesystem::path& directory,
                              const std::string& config_json,
                              const std::map<std::string, TensorBytes>& tensors,
                              const std::map<std::string, std::string>& provenance);

}  // namespace oxbow::io
