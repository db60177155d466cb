// SPDX-License-Identifier: Apache-2.0
// The modules of published networks by the names that ComfyUI gives them, which are also those of
// kohya's files. Some of them are several modules of diffusers whose rows lie one after the other:
//
//   double_blocks.3.img_attn.qkv   transformer_blocks.3.attn.to_q, .to_k, .to_v
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace oxbow::io {

struct LoraExport;

// A name may have one {}, the number of a block.
struct NativeModule {
  std::string_view name;
  std::vector<std::string_view> parts;  // In diffusers.
  bool halves_swapped = false;          // Shift before scale, and diffusers has scale first.
  bool native_only = false;             // ComfyUI does not know the parts by their own names.
};

// The name by which ComfyUI knows a module.
enum class ComfyKnows {
  kDiffusers,  // Its name in diffusers behind "transformer.", if it is not native_only.
  kAlike,      // Its native name behind "diffusion_model."; without a row diffusers has the same.
  kNative,     // The same, and modules without a row are not known.
};

struct ComfyNames {
  std::string_view transformer_class;
  ComfyKnows knows;
  std::vector<NativeModule> modules;  // Modules with another name than in diffusers.
};

// Null for a class that ComfyUI does not have.
const ComfyNames* ComfyNamesOf(std::string_view transformer_class);

// The block's number, "" for a pattern without one; nothing if the name is not of the pattern.
std::optional<std::string> NumberIn(std::string_view pattern, std::string_view name);
std::string WithNumber(std::string_view pattern, std::string_view number);

// The adapter's matrices as ComfyUI takes them, alpha / r in B: A of joined modules lie below each
// other, B in blocks, so that the rank is the sum of theirs. `base` has the shapes of the network's
// weights. kFailedPrecondition for a class or module that ComfyUI does not have.
absl::StatusOr<std::map<std::string, TensorBytes>> ComfyTensors(
    std::string_view transformer_class, const std::map<std::string, TensorHeader>& base,
    const LoraExport& lora);

}  // namespace oxbow::io
