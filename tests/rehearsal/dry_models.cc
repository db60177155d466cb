// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/dry_models.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"
#include "core/model/sd3.h"
#include "io/graph_files.h"

namespace oxbow::rehearsal {
namespace {

constexpr int64_t kPromptWidth = 4096;
constexpr int64_t kPooledWidth = 2048;

// transformer/config.json of stabilityai/stable-diffusion-3.5-medium and -large.
model::Sd3Params Medium() {
  model::Sd3Params params{.sample_size = 128,
                          .patch_size = 2,
                          .in_channels = 16,
                          .num_layers = 24,
                          .attention_head_dim = 64,
                          .num_attention_heads = 24,
                          .joint_attention_dim = kPromptWidth,
                          .caption_projection_dim = 1536,
                          .pooled_projection_dim = kPooledWidth,
                          .out_channels = 16,
                          .pos_embed_max_size = 384,
                          .qk_rms_norm = true};
  for (int64_t i = 0; i < 13; ++i) params.dual_attention_layers.push_back(i);
  return params;
}

model::Sd3Params Large() {
  model::Sd3Params params = Medium();
  params.num_layers = params.num_attention_heads = 38;
  params.caption_projection_dim = 2432;
  params.pos_embed_max_size = 192;
  params.dual_attention_layers.clear();
  return params;
}

std::shared_ptr<const model::Architecture> OfGraph(const std::string& file) {
  const std::filesystem::path path =
      std::filesystem::path(OXBOW_SOURCE_DIR) / "models/graphs" / file;
  const auto json = io::ReadGraphFile(path);
  OXBOW_CHECK(json.ok()) << json.status().ToString();
  const auto graph = nlohmann::json::parse(*json);
  auto architecture = model::ReadArchitecture(
      {.class_name = graph["class"], .config_json = graph["config"].dump(), .graph_json = *json});
  OXBOW_CHECK(architecture.ok()) << path << ": " << architecture.status().ToString();
  return *std::move(architecture);
}

}  // namespace

std::vector<std::shared_ptr<const DryModel>> DryModels() {
  const std::vector<std::string> joint = {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
                                          "attn.to_add_out", "attn.to_q",       "attn.to_k",
                                          "attn.to_v",       "attn.to_out.0"};
  const std::vector<std::string> plain = {"to_q", "to_k", "to_v", "to_out.0"};
  const auto sd3 = [&](std::string name, const model::Sd3Params& params) {
    return DryModel{.name = std::move(name),
                    .architecture = model::MakeSd3Architecture(params),
                    .latent = {16, 64, 64},
                    .prompt_tokens = 205,
                    .lora_targets = joint,
                    .rows = 8,
                    .in_full = true};
  };
  const auto graph = [&](std::string name, const std::string& file, std::vector<int64_t> latent,
                         int64_t tokens, int64_t rows) {
    return DryModel{.name = std::move(name),
                    .architecture = OfGraph(file),
                    .latent = std::move(latent),
                    .prompt_tokens = tokens,
                    .lora_targets = plain,
                    .rows = rows};
  };
  const std::vector<int64_t> wan_clip = {16, 9, 30, 52};  // 33 frames of 240 x 416.
  const std::set<std::string> large = {"flux-dev", "wan-14b", "qwen-image", "flux2-dev",
                                       "hunyuan-video"};
  const std::set<std::string> in_pieces = {"flux-dev", "wan-14b"};
  const std::set<std::string> offloaded = {"flux-dev", "wan-14b", "qwen-image", "flux2-dev"};
  std::vector<std::shared_ptr<const DryModel>> models;
  for (DryModel& model : std::vector<DryModel>{
           sd3("sd35m", Medium()), sd3("sd35l", Large()),
           graph("flux-dev", "FluxTransformer2DModel-flux.1-dev.json.gz", {16, 64, 64}, 512, 4),
           graph("flux-schnell", "FluxTransformer2DModel-flux.1-schnell.json.gz", {16, 64, 64}, 256,
                 4),
           graph("wan-1.3b", "WanTransformer3DModel-wan2.1-t2v-1.3b.json.gz", wan_clip, 512, 2),
           graph("wan-14b", "WanTransformer3DModel-wan2.1-t2v-14b.json.gz", wan_clip, 512, 2),
           graph("wan-14b-81f-480p", "WanTransformer3DModel-wan2.1-t2v-14b.json.gz",
                 {16, 21, 60, 104}, 512, 1),
           graph("qwen-image", "QwenImageTransformer2DModel-qwen-image.json.gz", {16, 64, 64}, 256,
                 4),
           graph("z-image", "ZImageTransformer2DModel-z-image.json.gz", {16, 64, 64}, 256, 4),
           graph("flux2-klein-4b", "Flux2Transformer2DModel-flux.2-klein-4b.json.gz", {128, 32, 32},
                 512, 4),
           graph("flux2-klein-9b", "Flux2Transformer2DModel-flux.2-klein-9b.json.gz", {128, 32, 32},
                 512, 4),
           graph("flux2-dev", "Flux2Transformer2DModel-flux.2-dev.json.gz", {128, 32, 32}, 512, 2),
           graph("hunyuan-video", "HunyuanVideoTransformer3DModel-hunyuan-video.json.gz",
                 {16, 9, 32, 52}, 256, 2),
           graph("ltx-video-2b", "LTXVideoTransformer3DModel-ltx-video-2b.json.gz",
                 {128, 5, 16, 24}, 256, 2),
           graph("ltx-video-13b", "LTXVideoTransformer3DModel-ltx-video-13b.json.gz",
                 {128, 5, 16, 24}, 256, 2)}) {
    if (model.name == "sd35m" || model.name == "flux-dev") model.ranks = {2, 8};
    model.in_int8 = large.contains(model.name);
    model.in_pieces = in_pieces.contains(model.name);
    model.offloaded = offloaded.contains(model.name);
    model.long_clip = model.name == "wan-14b-81f-480p";
    models.push_back(std::make_shared<const DryModel>(std::move(model)));
  }
  return models;
}

}  // namespace oxbow::rehearsal
