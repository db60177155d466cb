// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/model/architecture.h"
#include "core/model/exported_graph/exported_architecture.h"

namespace oxbow::model {
namespace {

// A class whose network runs by its exported graph.
ArchitectureRow Exported(const std::string& class_name, std::vector<std::string> lora_targets) {
  return {.class_name = class_name,
          .read = exported::ReadExportedArchitecture,
          .lora_targets = std::move(lora_targets)};
}

}  // namespace

// The first row that fits is taken, so the one of any class is the last. Targets of SD3 are those
// of Flow-GRPO, of FLUX.1 and FLUX.2 those of diffusers' training scripts, of Qwen-Image and
// Z-Image those of Flow-Factory, and of videos those of their trainers.
const std::vector<ArchitectureRow>& ArchitectureTable() {
  static const std::vector<ArchitectureRow> table = {
      Exported("SD3Transformer2DModel",
               {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out",
                "attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0"}),
      Exported("FluxTransformer2DModel",
               {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj",
                "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "ff.net.0.proj",
                "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"}),
      Exported("Flux2Transformer2DModel",
               {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj",
                "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "attn.to_qkv_mlp_proj",
                "attn.to_out"}),
      Exported("WanTransformer3DModel", {"to_q", "to_k", "to_v", "to_out.0"}),
      Exported("QwenImageTransformer2DModel",
               {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj",
                "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "img_mlp.net.0.proj",
                "txt_mlp.net.0.proj"}),
      Exported("ZImageTransformer2DModel",
               {"attention.to_q", "attention.to_k", "attention.to_v", "attention.to_out.0",
                "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"}),
      Exported("HunyuanVideoTransformer3DModel", {"to_q", "to_k", "to_v", "to_out.0", "add_q_proj",
                                                  "add_k_proj", "add_v_proj", "to_add_out"}),
      Exported("LTXVideoTransformer3DModel", {"to_q", "to_k", "to_v", "to_out.0"}),
      Exported(kAnyClass, {})};
  return table;
}

}  // namespace oxbow::model
