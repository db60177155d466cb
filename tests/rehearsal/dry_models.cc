// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/dry_models.h"

#include <set>
#include <utility>

#include "tests/testing/graph_architecture.h"

namespace oxbow::rehearsal {
namespace {

std::shared_ptr<const model::Architecture> OfGraph(const std::string& file) {
  return testing::GraphArchitecture("models/graphs/" + file);
}

}  // namespace

std::vector<std::shared_ptr<const DryModel>> DryModels() {
  const std::vector<std::string> joint = {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
                                          "attn.to_add_out", "attn.to_q",       "attn.to_k",
                                          "attn.to_v",       "attn.to_out.0"};
  const std::vector<std::string> plain = {"to_q", "to_k", "to_v", "to_out.0"};
  const auto sd3 = [&](std::string name, const std::string& file) {
    return DryModel{.name = std::move(name),
                    .architecture = OfGraph(file),
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
           sd3("sd35m", "SD3Transformer2DModel-sd3.5-medium.json.gz"),
           sd3("sd35l", "SD3Transformer2DModel-sd3.5-large.json.gz"),
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
