#include "io/diffusers_directory.h"

namespace oxbow::io {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kDiffusersBase[] = "diffusion_pytorch_model";
constexpr char kTransformersBase[] = "model";

// One CLIP, or two and perhaps T5; without a vae the latent is the image.
const std::vector<PipelineComponent> kStableDiffusion3 = {
    {"transformer", "diffusers", "SD3Transformer2DModel", kConfig, kDiffusersBase, true},
    {"text_encoder", "transformers", "CLIPTextModelWithProjection", kConfig, kTransformersBase,
     true},
    {"tokenizer", "transformers", "CLIPTokenizer", "", "", true},
    {"scheduler", "diffusers", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "",
     true},
    {"vae", "diffusers", "AutoencoderKL", kConfig, kDiffusersBase},
    {"text_encoder_2", "transformers", "CLIPTextModelWithProjection", kConfig, kTransformersBase},
    {"text_encoder_3", "transformers", "T5EncoderModel", kConfig, kTransformersBase},
    {"tokenizer_2", "transformers", "CLIPTokenizer", "", ""},
    {"tokenizer_3", "transformers", "T5TokenizerFast", "", ""},
};

// FLUX.1: its first encoder gives the pooled prompt alone, without a projection.
const std::vector<PipelineComponent> kFlux = {
    {"transformer", "diffusers", "FluxTransformer2DModel", kConfig, kDiffusersBase, true},
    {"text_encoder", "transformers", "CLIPTextModel", kConfig, kTransformersBase, true},
    {"tokenizer", "transformers", "CLIPTokenizer", "", "", true},
    {"text_encoder_2", "transformers", "T5EncoderModel", kConfig, kTransformersBase, true},
    {"tokenizer_2", "transformers", "T5TokenizerFast", "", "", true},
    {"scheduler", "diffusers", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "",
     true},
    {"vae", "diffusers", "AutoencoderKL", kConfig, kDiffusersBase},
};

// Wan from text to video; the scheduler differs from directory to directory.
const std::vector<PipelineComponent> kWan = {
    {"transformer", "diffusers", "WanTransformer3DModel", kConfig, kDiffusersBase, true},
    {"text_encoder", "transformers", "UMT5EncoderModel", kConfig, kTransformersBase, true},
    {"tokenizer", "transformers", "T5TokenizerFast", "", "", true},
    {"scheduler", "diffusers", "UniPCMultistepScheduler", "scheduler_config.json", "", true},
    {"scheduler", "diffusers", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "",
     true},
    {"vae", "diffusers", "AutoencoderKLWan", kConfig, kDiffusersBase},
};

}  // namespace

const std::vector<Pipeline>& PipelineTable() {
  static const std::vector<Pipeline> table = {
      {.class_name = "StableDiffusion3Pipeline",
       .text_side = "sd3",
       .components = kStableDiffusion3,
       .absent = {"image_encoder", "feature_extractor"}},
      {.class_name = "FluxPipeline",
       .text_side = "flux",
       .components = kFlux,
       .absent = {"image_encoder", "feature_extractor"}},
      {.class_name = "WanPipeline",
       .text_side = "wan",
       .components = kWan,
       .absent = {"transformer_2", "image_encoder", "image_processor"},
       .transformer_without = {"image_dim", "added_kv_proj_dim", "pos_embed_seq_len"}}};
  return table;
}

}  // namespace oxbow::io
