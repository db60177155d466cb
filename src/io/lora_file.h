// SPDX-License-Identifier: Apache-2.0
// Trained weights as files that other tools load.
//
//   diffusers  pytorch_lora_weights.safetensors   transformer.{module}.lora_A.weight
//   ComfyUI    {name}.safetensors                 the same keys, or its own (comfy_names.h)
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
#include "io/tensor_bytes.h"

namespace oxbow::io {

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

// Write files of DIRECTORY, made if absent; each appears whole or not at all. Errors as CheckLora's
// and those of writing.
absl::Status WriteDiffusersLora(const std::filesystem::path& directory, const LoraExport& lora);
absl::Status WriteComfyLora(const std::filesystem::path& directory, const std::string& name,
                            const std::string& transformer_class, const LoraExport& lora);
absl::Status WritePeftLora(const std::filesystem::path& directory, const LoraExport& lora);

// Reads what WriteDiffusersLora or WritePeftLora wrote: a directory (PEFT's files, if it has both)
// or one .safetensors file. The names are those without prefix; rank and alpha are what the file
// declares, where a file for diffusers declares none its rank. kNotFound if nothing is there;
// kDataLoss, naming the file, for tensors that are no float32 adapter of a transformer.
absl::StatusOr<LoraExport> ReadLora(const std::filesystem::path& path);

// The same adapter as one of another `alpha`: B times what keeps alpha / r B A.
void SetAlpha(double alpha, LoraExport& lora);

// Writes DIRECTORY/transformer/{config.json,diffusion_pytorch_model.safetensors}: all weights.
absl::Status WriteTransformer(const std::filesystem::path& directory,
                              const std::string& config_json,
                              const std::map<std::string, TensorBytes>& tensors,
                              const std::map<std::string, std::string>& provenance);

}  // namespace oxbow::io
