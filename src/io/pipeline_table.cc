// SPDX-License-Identifier: Apache-2.0
#include "io/diffusers_directory.h"

namespace oxbow::io {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kDiffusersBase[] = "diffusion_pytorch_model";
constexpr char kTransformersBase[] = "model";

// One CLIP, or two and perhaps T5; without a vae the latent is the image.
const std::vector<PipelineComponent> kStableDiffusion3 = {
    {"transformer", "SD3Transformer2DModel", kConfig, kDiffusersBase, true},
    {"text_encoder", "CLIPTextModelWithProjection", kConfig, kTransformersBase, true},
    {"tokenizer", "CLIPTokenizer", "", "", true},
    {"scheduler", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "", true},
    {"vae", "AutoencoderKL", kConfig, kDiffusersBase},
    {"text_encoder_2", "CLIPTextModelWithProjection", kConfig, kTransformersBase},
    {"text_encoder_3", "T5EncoderModel", kConfig, kTransformersBase},
    {"tokenizer_2", "CLIPTokenizer", "", ""},
    {"tokenizer_3", "T5TokenizerFast", "", ""},
};

// FLUX.1: its first encoder gives the pooled prompt alone, without a projection.
const std::vector<PipelineComponent> kFlux = {
    {"transformer", "FluxTransformer2DModel", kConfig, kDiffusersBase, true},
    {"text_encoder", "CLIPTextModel", kConfig, kTransformersBase, true},
    {"tokenizer", "CLIPTokenizer", "", "", true},
    {"text_encoder_2", "T5EncoderModel", kConfig, kTransformersBase, true},
    {"tokenizer_2", "T5TokenizerFast", "", "", true},
    {"scheduler", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "", true},
    {"vae", "AutoencoderKL", kConfig, kDiffusersBase},
};

// Wan from text to video; the scheduler differs from directory to directory.
const std::vector<PipelineComponent> kWan = {
    {"transformer", "WanTransformer3DModel", kConfig, kDiffusersBase, true},
    {"text_encoder", "UMT5EncoderModel", kConfig, kTransformersBase, true},
    {"tokenizer", "T5TokenizerFast", "", "", true},
    {"scheduler", "UniPCMultistepScheduler", "scheduler_config.json", "", true},
    {"scheduler", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "", true},
    {"vae", "AutoencoderKLWan", kConfig, kDiffusersBase},
};

// A pipeline with one text encoder, or of more the first.
std::vector<PipelineComponent> OneEncoder(const std::string& transformer,
                                          const std::string& text_encoder,
                                          const std::string& tokenizer,
                                          const std::string& autoencoder) {
  return {{"transformer", transformer, kConfig, kDiffusersBase, true},
          {"text_encoder", text_encoder, kConfig, kTransformersBase, true},
          {"tokenizer", tokenizer, "", "", true},
          {"scheduler", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "", true},
          {"vae", autoencoder, kConfig, kDiffusersBase}};
}

std::vector<PipelineComponent> HunyuanVideoPipeline() {
  std::vector<PipelineComponent> components =
      OneEncoder("HunyuanVideoTransformer3DModel", "LlamaModel", "LlamaTokenizer",
                 "AutoencoderKLHunyuanVideo");
  components.push_back({"text_encoder_2", "CLIPTextModel", kConfig, kTransformersBase, true});
  components.push_back({"tokenizer_2", "CLIPTokenizer", "", "", true});
  return components;
}

}  // namespace

const std::vector<Pipeline>& PipelineTable() {
  static const std::string kLanguageModel = "language_model";
  static const std::vector<Pipeline> table = {
      {.class_name = "StableDiffusion3Pipeline",
       .text_side = "sd3",
       .components = kStableDiffusion3,
       .absent = {"image_encoder", "feature_extractor"}},
      {.class_name = "FluxPipeline",
       .text_side = "flux",
       .components = kFlux,
       .absent = {"image_encoder", "feature_extractor"},
       .grid = flow::ScheduleKind::kLinspace,
       .distilled = {"transformer/config.json", "guidance_embeds", "false"}},  // schnell
      {.class_name = "WanPipeline",
       .text_side = "wan",
       .components = kWan,
       .absent = {"transformer_2", "image_encoder", "image_processor"},
       .transformer_without = {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"}},
      {.class_name = "QwenImagePipeline",
       .text_side = kLanguageModel,
       .components = OneEncoder("QwenImageTransformer2DModel", "Qwen2_5_VLForConditionalGeneration",
                                "Qwen2Tokenizer", "AutoencoderKLQwenImage"),
       .absent = {},
       .grid = flow::ScheduleKind::kLinspace},
      {.class_name = "ZImagePipeline",
       .text_side = kLanguageModel,
       .components =
           OneEncoder("ZImageTransformer2DModel", "Qwen3Model", "Qwen2Tokenizer", "AutoencoderKL"),
       .absent = {},
       .transformer_without = {"siglip_feat_dim"},
       .grid = flow::ScheduleKind::kLinspace,
       .distilled = {"scheduler/scheduler_config.json", "shift", "3"},  // Turbo; the base has 6.
       .guidance_offset = 1},
      {.class_name = "Flux2Pipeline",
       .text_side = kLanguageModel,
       .components = OneEncoder("Flux2Transformer2DModel", "Mistral3ForConditionalGeneration",
                                "PixtralProcessor", "AutoencoderKLFlux2"),
       .absent = {},
       .grid = flow::ScheduleKind::kLinspace,
       .shift_by_steps = true},
      {.class_name = "Flux2KleinPipeline",
       .text_side = kLanguageModel,
       .components = OneEncoder("Flux2Transformer2DModel", "Qwen3ForCausalLM", "Qwen2Tokenizer",
                                "AutoencoderKLFlux2"),
       .absent = {},
       .grid = flow::ScheduleKind::kLinspace,
       .shift_by_steps = true,
       .distilled = {"model_index.json", "is_distilled", "true", /*ignores_guidance=*/true}},
      {.class_name = "HunyuanVideoPipeline",
       .text_side = "encoded_elsewhere",
       .components = HunyuanVideoPipeline(),
       .absent = {},
       .transformer_without = {"image_condition_type"},
       .grid = flow::ScheduleKind::kDance},
      {.class_name = "LTXPipeline",
       .text_side = "ltx",
       .components = OneEncoder("LTXVideoTransformer3DModel", "T5EncoderModel", "T5TokenizerFast",
                                "AutoencoderKLLTXVideo"),
       .absent = {},
       .grid = flow::ScheduleKind::kLinspace}};
  return table;
}

}  // namespace oxbow::io
