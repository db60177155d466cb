// SPDX-License-Identifier: Apache-2.0
// Trained weights as files that other tools load.
//
//   diffusers  pytorch_lora_weights.safetensors   transformer.{module}.lora_A.weight
//   ComfyUI    {name}.safetensors                 the names that it knows (comfy_names.h)
//   PEFT       adapter_model.safetensors          base_model.model.{module}.lora_A.weight
//              adapter_config.json
//
// The first two have alpha / r multiplied into B and alpha = r declared: diffusers and ComfyUI then
// agree on the strength, though one reads alpha from the header and the other, finding no
// `.alpha` tensor, takes 1. PEFT's have B as it was trained and alpha as it was set, so that
// training can go on from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/safetensors.h"
#include "io/tensor_bytes.h"

namespace oxbow::io {

// Names of an adapter's files: those of PEFT, and that of diffusers.
inline constexpr char kPeftFile[] = "adapter_model.safetensors";
inline constexpr char kPeftConfig[] = "adapter_config.json";
inline constexpr char kDiffusersFile[] = "pytorch_lora_weights.safetensors";

struct LoraExport {
  std::map<std::string, TensorBytes> tensors;  // `{module}.lora_A.weight`, `.lora_B.weight`; F32.
  int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> targets;
  std::string base_model;                         // A path or a hub's name; PEFT's config has it.
  std::map<std::string, std::string> provenance;  // Run, step, base model: ignored by loaders.
};

// OK iff every tensor is F32, A [rank, in] and B [out, rank] come in pairs and there are some.
// kDataLoss names the tensor.
absl::Status CheckLora(const LoraExport& lora);

// The tensors with alpha / r in B. Requires a sound adapter (CheckLora).
std::map<std::string, TensorBytes> FoldedTensors(const LoraExport& lora);

// The same values times `scale`. Requires F32.
TensorBytes Scaled(TensorBytes tensor, double scale);

// Write files of DIRECTORY, made if absent; each appears whole or not at all. Errors as CheckLora's
// and those of writing; for ComfyUI as ComfyTensors', with the class and the headers of the base
// model.
absl::Status WriteDiffusersLora(const std::filesystem::path& directory, const LoraExport& lora);
absl::Status WriteComfyLora(const std::filesystem::path& directory, const std::string& name,
                            const std::string& transformer_class,
                            const std::map<std::string, TensorHeader>& base,
                            const LoraExport& lora);
absl::Status WritePeftLora(const std::filesystem::path& directory, const LoraExport& lora);

// Writes DIRECTORY/transformer/{config.json,diffusion_pytorch_model.safetensors}: all weights.
absl::Status WriteTransformer(const std::filesystem::path& directory,
                              const std::string& config_json,
                              const std::map<std::string, TensorBytes>& tensors,
                              const std::map<std::string, std::string>& provenance);

}  // namespace oxbow::io
