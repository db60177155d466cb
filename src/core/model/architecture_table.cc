// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "core/model/architecture.h"

namespace oxbow::model {

// Targets of SD3 are those of Flow-GRPO, of FLUX.1 and FLUX.2 those of diffusers' training scripts,
// of Qwen-Image and Z-Image those of Flow-Factory, and of videos those of their trainers.
std::vector<std::string> LoraTargetsOf(const Architecture& architecture) {
  static const std::map<std::string, std::vector<std::string>> table = {
      {"SD3Transformer2DModel",
       {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "attn.to_q",
        "attn.to_k", "attn.to_v", "attn.to_out.0"}},
      {"FluxTransformer2DModel",
       {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj",
        "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "ff.net.0.proj", "ff.net.2",
        "ff_context.net.0.proj", "ff_context.net.2"}},
      {"Flux2Transformer2DModel",
       {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj",
        "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "attn.to_qkv_mlp_proj",
        "attn.to_out"}},
      {"WanTransformer3DModel", {"to_q", "to_k", "to_v", "to_out.0"}},
      {"QwenImageTransformer2DModel",
       {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj",
        "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "img_mlp.net.0.proj",
        "txt_mlp.net.0.proj"}},
      {"ZImageTransformer2DModel",
       {"attention.to_q", "attention.to_k", "attention.to_v", "attention.to_out.0",
        "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"}},
      {"HunyuanVideoTransformer3DModel",
       {"to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj",
        "to_add_out"}},
      {"LTXVideoTransformer3DModel", {"to_q", "to_k", "to_v", "to_out.0"}},
  };
  const auto row = table.find(architecture.class_name());
  return row == table.end() ? std::vector<std::string>() : row->second;
}

}  // namespace oxbow::model
