// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters in files of any tool, as matrices of a network's modules.
//
//   PEFT       base_model.model.MODULE.lora_A.weight    adapter_config.json: alpha, alpha_pattern
//   diffusers  transformer.MODULE.lora_A.weight         the same in the header's metadata, or none
//   ComfyUI    diffusion_model.MODULE.lora_A.weight     MODULE.alpha, or none
//   kohya      lora_unet_MODULE.lora_down.weight        MODULE.alpha; "_" in place of "."
//
// MODULE is a name of diffusers or of the network's publication (comfy_names.h); a module that
// joins several is split into them. Without an alpha anywhere a matrix has strength 1. Values of 16
// bits become float32, which changes none. What would change the result otherwise (DoRA, biases,
// whole weights, other kinds of adapters, text encoders) is refused by its name.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace oxbow::io {

struct StoredAdapter {
  struct Module {
    TensorBytes a;     // F32 [r, in]
    TensorBytes b;     // F32 [out, r]
    double scale = 1;  // The weight becomes W + scale B A.
  };
  std::map<std::string, Module> modules;  // By their names in diffusers.
  std::filesystem::path file;             // The file that was read.
};

// The network that an adapter is for.
struct AdaptedNetwork {
  std::string transformer_class;
  std::map<std::string, TensorHeader> tensors;
};

// An adapter out of a file's tensors and the text of its adapter_config.json, "" without one.
// kDataLoss for a file that is not sound, kFailedPrecondition for what is not read or does not fit
// the network; both name it.
absl::StatusOr<StoredAdapter> ParseAdapter(Safetensors content, const std::string& config,
                                           const AdaptedNetwork& network);

// The adapter at `path`: a .safetensors file, or a directory with PEFT's file, with diffusers', or
// with one .safetensors. kNotFound without one; kFailedPrecondition, naming two, if several are
// there that are not one adapter. Else as ParseAdapter, with the file's name.
absl::StatusOr<StoredAdapter> ReadAdapter(const std::filesystem::path& path,
                                          const AdaptedNetwork& network);

// Whether `path` is a .safetensors file, or a directory with one.
bool HasAdapter(const std::filesystem::path& path);

}  // namespace oxbow::io
