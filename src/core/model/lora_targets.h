// Which modules a low-rank adapter attaches to, by name, as PEFT matches them.
//
// A target is a module's whole name or its last parts: "attn.to_k" selects
// "transformer_blocks.3.attn.to_k" and neither "transformer_blocks.3.attn2.to_k" nor
// "xattn.to_k". The customary eight targets select 191 modules of SD3.5-medium.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::model {

// The selected modules, sorted. kInvalidArgument for no targets, or for a target that selects
// nothing, naming the one that would and is spelled most like it.
absl::StatusOr<std::vector<std::string>> MatchTargets(const std::vector<std::string>& modules,
                                                      const std::vector<std::string>& targets);

}  // namespace oxbow::model
