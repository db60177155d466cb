// SPDX-License-Identifier: Apache-2.0
// Names in files of adapters: which module of a network, and which of its matrices, a tensor is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace oxbow::io {

enum class AdapterPart { kDown, kUp, kAlpha };

struct AdapterKey {
  std::string module;  // As the file names it, with its prefix.
  AdapterPart part = AdapterPart::kDown;
};

// "lora_unet_single_blocks_0_linear2.lora_down.weight" is A of "lora_unet_single_blocks_0_linear2".
// kFailedPrecondition names a tensor that is none of a plain LoRA of a transformer.
absl::StatusOr<AdapterKey> ParseAdapterKey(const std::string& name);

struct ModuleRows {
  std::string module;  // In diffusers.
  int64_t rows = 0;
  int64_t columns = 0;
};

// The modules of the network that a file's module stands for: one, or several, whose rows lie one
// after the other.
struct ModulesOfKey {
  std::vector<ModuleRows> rows;
  bool halves_swapped = false;
};

class AdapterNames {
 public:
  // The weights of a network by their names in diffusers.
  AdapterNames(const std::string& transformer_class,
               const std::map<std::string, TensorHeader>& tensors);

  // kFailedPrecondition for a module that the network has not, or that could be two of it.
  absl::StatusOr<ModulesOfKey> Find(const std::string& module) const;

 private:
  void Insert(const std::string& name, const ModulesOfKey& modules);

  // Without prefix. The second with "_" for "."; empty where two modules have the name.
  std::map<std::string, ModulesOfKey> dotted_;
  std::map<std::string, ModulesOfKey> underscored_;
};

}  // namespace oxbow::io
