// SPDX-License-Identifier: Apache-2.0
#include "io/comfy_names.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace oxbow::io {
namespace {

struct NativeNames {
  std::string_view transformer_class;
  std::vector<std::pair<absl::string_view, absl::string_view>> parts;  // In diffusers, in ComfyUI.
};

// A row per class that ComfyUI knows only by the names of its own publication.
const std::vector<NativeNames>& Table() {
  static const auto& table = *new std::vector<NativeNames>{
      {"WanTransformer3DModel",
       {{".attn1.to_q", ".self_attn.q"},
        {".attn1.to_k", ".self_attn.k"},
        {".attn1.to_v", ".self_attn.v"},
        {".attn1.to_out.0", ".self_attn.o"},
        {".attn2.to_q", ".cross_attn.q"},
        {".attn2.to_k", ".cross_attn.k"},
        {".attn2.to_v", ".cross_attn.v"},
        {".attn2.to_out.0", ".cross_attn.o"},
        {".ffn.net.0.proj", ".ffn.0"},
        {".ffn.net.2", ".ffn.2"},
        {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
        {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
        {"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
        {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
        {"condition_embedder.time_proj", "time_projection.1"},
        {"proj_out", "head.head"}}},
  };
  return table;
}

}  // namespace

std::string ComfyName(std::string_view transformer_class, std::string_view module) {
  const absl::string_view name(module.data(), module.size());
  for (const NativeNames& row : Table()) {
    if (row.transformer_class != transformer_class) continue;
    return absl::StrCat("diffusion_model.", absl::StrReplaceAll(name, row.parts));
  }
  return absl::StrCat("transformer.", name);
}

}  // namespace oxbow::io
