// SPDX-License-Identifier: Apache-2.0
// The strength of each matrix of an adapter, as PEFT's LoraConfig declares it: adapter_config.json,
// or, with a prefix before each key, the metadata of a file of diffusers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::io {

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
