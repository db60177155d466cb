// SPDX-License-Identifier: Apache-2.0
// Files of adapters: which module of a network, and which of its matrices, a tensor is by its name,
// and how strong it is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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

// The strength of each matrix of an adapter, as PEFT's LoraConfig declares it: adapter_config.json,
// or, with a prefix before each key, the metadata of a file of diffusers.
struct DeclaredStrength {
  double alpha = 0;   // 0: nothing is declared.
  bool root = false;  // rsLoRA, arXiv:2312.03732: alpha / sqrt(r) in place of alpha / r.
  std::vector<std::pair<std::string, double>> patterns;  // alpha_pattern, in its order.

  // The number that multiplies B A of a module. The first pattern that fits is the module's alpha,
  // as in PEFT. Requires a declared alpha.
  double ScaleOf(std::string_view module, int64_t rank) const;
};

// kDataLoss for what is no config, kFailedPrecondition, naming the key, for one that asks for
// another computation than that of a plain LoRA, or is not known and says something.
absl::StatusOr<DeclaredStrength> ParseStrength(const std::string& json, std::string_view prefix);

// Whether `pattern` fits the end of `module`, from a dot or its begin on: what re.match of
// (.*\.)?(PATTERN)$ says, for patterns of literals, ".", "\d", "[0-9]" with * or +, and a leading
// ^.
bool FitsPattern(std::string_view pattern, std::string_view module);

}  // namespace oxbow::io
