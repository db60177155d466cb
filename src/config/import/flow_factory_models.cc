// SPDX-License-Identifier: Apache-2.0
#include "config/import/flow_factory_models.h"

#include <string>
#include <vector>

namespace oxbow::config {
namespace {

constexpr char kScale[] = "sampling.guidance";
constexpr char kEmbedded[] = "sampling.embedded_guidance";
constexpr char kOwnShift[] = "linspace";  // linspace(1, 1/N, N), shifted by the model's scheduler.
constexpr char kEncodedElsewhere[] =
    "prompts are encoded once by tools/encode_prompts (docs/models.md): set prompts.cache";
constexpr char kFluxTargets[] =
    "[attn.to_k, attn.to_q, attn.to_v, attn.to_out.0, attn.add_k_proj, attn.add_q_proj, "
    "attn.add_v_proj, attn.to_add_out, ff.net.0.proj, ff.net.2, ff_context.net.0.proj, "
    "ff_context.net.2]";
constexpr char kWanTargets[] =
    "[attn1.to_q, attn1.to_k, attn1.to_v, attn1.to_out.0, attn2.to_q, attn2.to_k, attn2.to_v, "
    "attn2.to_out.0, ffn.net.0.proj, ffn.net.2]";
// Without img_mlp.net.2.proj and txt_mlp.net.2.proj, which the network does not have.
constexpr char kQwenTargets[] =
    "[attn.to_q, attn.to_k, attn.to_v, attn.to_out.0, attn.add_q_proj, attn.add_k_proj, "
    "attn.add_v_proj, attn.to_add_out, img_mlp.net.0.proj, txt_mlp.net.0.proj]";
constexpr char kZImageTargets[] =
    "[attention.to_q, attention.to_k, attention.to_v, attention.to_out.0, feed_forward.w1, "
    "feed_forward.w2, feed_forward.w3]";

const std::vector<ForeignModel>& Models() {
  static const auto& models = *new std::vector<ForeignModel>{
      {"sd3", nullptr, nullptr, kScale, 1, kOwnShift},
      {"sd3-5", nullptr, nullptr, kScale, 1, kOwnShift},
      {"sd3_5", nullptr, nullptr, kScale, 1, kOwnShift},
      {"sd3.5", nullptr, nullptr, kScale, 1, kOwnShift},
      {"flux1", kFluxTargets, "512", kEmbedded, 0, kOwnShift},
      {"wan2_t2v", kWanTargets, "512", kScale, 1, "unipc_flow_whole", /*draws_videos=*/true},
      {"qwen-image", kQwenTargets, nullptr, kScale, 1, kOwnShift, false, kEncodedElsewhere},
      {"z-image", kZImageTargets, nullptr, kScale, 0, kOwnShift, false, kEncodedElsewhere},
  };
  return models;
}

}  // namespace

const ForeignModel& ForeignModelOf(const Translation& t) {
  const std::string type = t.Get("model.model_type").text();
  for (const ForeignModel& model : Models()) {
    if (type == model.type) return model;
  }
  return Models().front();  // CheckForeignModel has refused the file.
}

void CheckForeignModel(Translation& t) {
  std::vector<std::string> types;
  for (const ForeignModel& model : Models()) types.emplace_back(model.type);
  const ForeignSetting type = t.Get("model.model_type");
  t.Allow(type, types,
          "models here are Stable Diffusion 3 (sd3, sd3-5), FLUX.1 (flux1), Wan2.1 from text "
          "(wan2_t2v), Qwen-Image (qwen-image) and Z-Image (z-image)");
  if (const char* how = ForeignModelOf(t).differs; how != nullptr) t.Differs(type, how);
}

}  // namespace oxbow::config
