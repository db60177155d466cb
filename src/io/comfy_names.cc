// SPDX-License-Identifier: Apache-2.0
#include "io/comfy_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/lora_file.h"

namespace oxbow::io {
namespace {

using Modules = std::vector<NativeModule>;

Modules StableDiffusion3() {
  return {
      {"t_embedder.mlp.0", {"time_text_embed.timestep_embedder.linear_1"}},
      {"t_embedder.mlp.2", {"time_text_embed.timestep_embedder.linear_2"}},
      {"y_embedder.mlp.0", {"time_text_embed.text_embedder.linear_1"}},
      {"y_embedder.mlp.2", {"time_text_embed.text_embedder.linear_2"}},
      {"final_layer.adaLN_modulation.1", {"norm_out.linear"}, true},
      {"final_layer.linear", {"proj_out"}},
      {"joint_blocks.{}.x_block.attn.qkv",
       {"transformer_blocks.{}.attn.to_q", "transformer_blocks.{}.attn.to_k",
        "transformer_blocks.{}.attn.to_v"}},
      {"joint_blocks.{}.x_block.attn2.qkv",
       {"transformer_blocks.{}.attn2.to_q", "transformer_blocks.{}.attn2.to_k",
        "transformer_blocks.{}.attn2.to_v"}},
      {"joint_blocks.{}.context_block.attn.qkv",
       {"transformer_blocks.{}.attn.add_q_proj", "transformer_blocks.{}.attn.add_k_proj",
        "transformer_blocks.{}.attn.add_v_proj"}},
      {"joint_blocks.{}.x_block.attn.proj", {"transformer_blocks.{}.attn.to_out.0"}},
      {"joint_blocks.{}.x_block.attn2.proj", {"transformer_blocks.{}.attn2.to_out.0"}},
      {"joint_blocks.{}.context_block.attn.proj", {"transformer_blocks.{}.attn.to_add_out"}},
      {"joint_blocks.{}.x_block.mlp.fc1", {"transformer_blocks.{}.ff.net.0.proj"}},
      {"joint_blocks.{}.x_block.mlp.fc2", {"transformer_blocks.{}.ff.net.2"}},
      {"joint_blocks.{}.context_block.mlp.fc1", {"transformer_blocks.{}.ff_context.net.0.proj"}},
      {"joint_blocks.{}.context_block.mlp.fc2", {"transformer_blocks.{}.ff_context.net.2"}},
      {"joint_blocks.{}.x_block.adaLN_modulation.1", {"transformer_blocks.{}.norm1.linear"}},
      // Not context_block's: in the last block its halves are swapped.
  };
}

// Blocks with an image and a text stream, of FLUX.1, FLUX.2 and HunyuanVideo.
Modules TwoStreams() {
  return {{"double_blocks.{}.img_attn.qkv",
           {"transformer_blocks.{}.attn.to_q", "transformer_blocks.{}.attn.to_k",
            "transformer_blocks.{}.attn.to_v"}},
          {"double_blocks.{}.txt_attn.qkv",
           {"transformer_blocks.{}.attn.add_q_proj", "transformer_blocks.{}.attn.add_k_proj",
            "transformer_blocks.{}.attn.add_v_proj"}},
          {"double_blocks.{}.img_attn.proj", {"transformer_blocks.{}.attn.to_out.0"}},
          {"double_blocks.{}.txt_attn.proj", {"transformer_blocks.{}.attn.to_add_out"}},
          {"final_layer.adaLN_modulation.1", {"norm_out.linear"}, true},
          {"final_layer.linear", {"proj_out"}}};
}

Modules Flux() {
  Modules modules = TwoStreams();
  const Modules more = {
      {"double_blocks.{}.img_mlp.0", {"transformer_blocks.{}.ff.net.0.proj"}},
      {"double_blocks.{}.img_mlp.2", {"transformer_blocks.{}.ff.net.2"}},
      {"double_blocks.{}.txt_mlp.0", {"transformer_blocks.{}.ff_context.net.0.proj"}},
      {"double_blocks.{}.txt_mlp.2", {"transformer_blocks.{}.ff_context.net.2"}},
      {"double_blocks.{}.img_mod.lin", {"transformer_blocks.{}.norm1.linear"}},
      {"double_blocks.{}.txt_mod.lin", {"transformer_blocks.{}.norm1_context.linear"}},
      {"single_blocks.{}.linear1",
       {"single_transformer_blocks.{}.attn.to_q", "single_transformer_blocks.{}.attn.to_k",
        "single_transformer_blocks.{}.attn.to_v", "single_transformer_blocks.{}.proj_mlp"}},
      {"single_blocks.{}.linear2", {"single_transformer_blocks.{}.proj_out"}},
      {"single_blocks.{}.modulation.lin", {"single_transformer_blocks.{}.norm.linear"}},
      {"time_in.in_layer", {"time_text_embed.timestep_embedder.linear_1"}},
      {"time_in.out_layer", {"time_text_embed.timestep_embedder.linear_2"}},
      {"vector_in.in_layer", {"time_text_embed.text_embedder.linear_1"}},
      {"vector_in.out_layer", {"time_text_embed.text_embedder.linear_2"}},
      {"guidance_in.in_layer", {"time_text_embed.guidance_embedder.linear_1"}},
      {"guidance_in.out_layer", {"time_text_embed.guidance_embedder.linear_2"}}};
  modules.insert(modules.end(), more.begin(), more.end());
  return modules;
}

Modules FluxOne() {
  Modules modules = Flux();
  modules.push_back({"img_in", {"x_embedder"}});
  modules.push_back({"txt_in", {"context_embedder"}});
  return modules;
}

// HunyuanVideo has the blocks of FLUX.1, and a refiner of the text before them.
Modules HunyuanVideo() {
  Modules modules = Flux();
  const Modules refiner = {
      {"txt_in.input_embedder", {"context_embedder.proj_in"}},
      {"txt_in.t_embedder.in_layer",
       {"context_embedder.time_text_embed.timestep_embedder.linear_1"}},
      {"txt_in.t_embedder.out_layer",
       {"context_embedder.time_text_embed.timestep_embedder.linear_2"}},
      {"txt_in.c_embedder.in_layer", {"context_embedder.time_text_embed.text_embedder.linear_1"}},
      {"txt_in.c_embedder.out_layer", {"context_embedder.time_text_embed.text_embedder.linear_2"}},
      {"txt_in.individual_token_refiner.blocks.{}.self_attn.qkv",
       {"context_embedder.token_refiner.refiner_blocks.{}.attn.to_q",
        "context_embedder.token_refiner.refiner_blocks.{}.attn.to_k",
        "context_embedder.token_refiner.refiner_blocks.{}.attn.to_v"}},
      {"txt_in.individual_token_refiner.blocks.{}.self_attn.proj",
       {"context_embedder.token_refiner.refiner_blocks.{}.attn.to_out.0"}},
      {"txt_in.individual_token_refiner.blocks.{}.mlp.0",
       {"context_embedder.token_refiner.refiner_blocks.{}.ff.net.0.proj"}},
      {"txt_in.individual_token_refiner.blocks.{}.mlp.2",
       {"context_embedder.token_refiner.refiner_blocks.{}.ff.net.2"}},
      {"txt_in.individual_token_refiner.blocks.{}.adaLN_modulation.1",
       {"context_embedder.token_refiner.refiner_blocks.{}.norm_out.linear"}}};
  modules.insert(modules.end(), refiner.begin(), refiner.end());
  return modules;
}

Modules FluxTwo() {
  Modules modules = TwoStreams();
  modules.push_back({"img_in", {"x_embedder"}});
  modules.push_back({"txt_in", {"context_embedder"}});
  for (const auto& [native, part] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"double_blocks.{}.img_mlp.0", "transformer_blocks.{}.ff.linear_in"},
           {"double_blocks.{}.img_mlp.2", "transformer_blocks.{}.ff.linear_out"},
           {"double_blocks.{}.txt_mlp.0", "transformer_blocks.{}.ff_context.linear_in"},
           {"double_blocks.{}.txt_mlp.2", "transformer_blocks.{}.ff_context.linear_out"},
           {"single_blocks.{}.linear1", "single_transformer_blocks.{}.attn.to_qkv_mlp_proj"},
           {"single_blocks.{}.linear2", "single_transformer_blocks.{}.attn.to_out"},
           {"double_stream_modulation_img.lin", "double_stream_modulation_img.linear"},
           {"double_stream_modulation_txt.lin", "double_stream_modulation_txt.linear"},
           {"single_stream_modulation.lin", "single_stream_modulation.linear"},
           {"time_in.in_layer", "time_guidance_embed.timestep_embedder.linear_1"},
           {"time_in.out_layer", "time_guidance_embed.timestep_embedder.linear_2"},
           {"guidance_in.in_layer", "time_guidance_embed.guidance_embedder.linear_1"},
           {"guidance_in.out_layer", "time_guidance_embed.guidance_embedder.linear_2"}}) {
    modules.push_back({.name = native, .parts = {part}, .native_only = true});
  }
  return modules;
}

Modules ZImage() {
  return {{"layers.{}.attention.qkv",
           {"layers.{}.attention.to_q", "layers.{}.attention.to_k", "layers.{}.attention.to_v"}},
          {"noise_refiner.{}.attention.qkv",
           {"noise_refiner.{}.attention.to_q", "noise_refiner.{}.attention.to_k",
            "noise_refiner.{}.attention.to_v"}},
          {"context_refiner.{}.attention.qkv",
           {"context_refiner.{}.attention.to_q", "context_refiner.{}.attention.to_k",
            "context_refiner.{}.attention.to_v"}},
          {"layers.{}.attention.out", {"layers.{}.attention.to_out.0"}},
          {"noise_refiner.{}.attention.out", {"noise_refiner.{}.attention.to_out.0"}},
          {"context_refiner.{}.attention.out", {"context_refiner.{}.attention.to_out.0"}},
          {"x_embedder", {"all_x_embedder.2-1"}},
          {"final_layer.linear", {"all_final_layer.2-1.linear"}},
          {"final_layer.adaLN_modulation.1", {"all_final_layer.2-1.adaLN_modulation.1"}}};
}

Modules Wan() {
  return {{"blocks.{}.self_attn.q", {"blocks.{}.attn1.to_q"}},
          {"blocks.{}.self_attn.k", {"blocks.{}.attn1.to_k"}},
          {"blocks.{}.self_attn.v", {"blocks.{}.attn1.to_v"}},
          {"blocks.{}.self_attn.o", {"blocks.{}.attn1.to_out.0"}},
          {"blocks.{}.cross_attn.q", {"blocks.{}.attn2.to_q"}},
          {"blocks.{}.cross_attn.k", {"blocks.{}.attn2.to_k"}},
          {"blocks.{}.cross_attn.v", {"blocks.{}.attn2.to_v"}},
          {"blocks.{}.cross_attn.o", {"blocks.{}.attn2.to_out.0"}},
          {"blocks.{}.ffn.0", {"blocks.{}.ffn.net.0.proj"}},
          {"blocks.{}.ffn.2", {"blocks.{}.ffn.net.2"}},
          {"text_embedding.0", {"condition_embedder.text_embedder.linear_1"}},
          {"text_embedding.2", {"condition_embedder.text_embedder.linear_2"}},
          {"time_embedding.0", {"condition_embedder.time_embedder.linear_1"}},
          {"time_embedding.2", {"condition_embedder.time_embedder.linear_2"}},
          {"time_projection.1", {"condition_embedder.time_proj"}},
          {"head.head", {"proj_out"}}};
}

Modules LtxVideo() {
  return {{"patchify_proj", {"proj_in"}},
          {"adaln_single.emb.timestep_embedder.linear_1",
           {"time_embed.emb.timestep_embedder.linear_1"}},
          {"adaln_single.emb.timestep_embedder.linear_2",
           {"time_embed.emb.timestep_embedder.linear_2"}},
          {"adaln_single.linear", {"time_embed.linear"}}};
}

constexpr std::string_view kNumber = "{}";
constexpr char kNative[] = "diffusion_model.";
constexpr char kComfyDown[] = ".lora_A.weight";
constexpr char kComfyUp[] = ".lora_B.weight";

struct Place {
  const NativeModule* module = nullptr;
  std::string number;
};

std::optional<Place> PlaceOf(const ComfyNames& names, std::string_view module) {
  for (const NativeModule& native : names.modules) {
    for (const std::string_view part : native.parts) {
      if (const auto number = NumberIn(part, module)) return Place{&native, *number};
    }
  }
  return std::nullopt;
}

// The second half of the rows before the first.
TensorBytes HalvesSwapped(TensorBytes tensor) {
  const size_t half = tensor.data.size() / 2;
  std::rotate(tensor.data.begin(), tensor.data.begin() + static_cast<ptrdiff_t>(half),
              tensor.data.end());
  return tensor;
}

// The rows of a part that has no adapter, too.
absl::StatusOr<int64_t> ComfyRowsOf(const std::map<std::string, TensorHeader>& base,
                                    const std::string& module) {
  const auto found = base.find(module + ".weight");
  if (found != base.end() && found->second.shape.size() == 2) return found->second.shape[0];
  return absl::FailedPreconditionError(absl::StrCat(
      "ComfyUI joins a module with others, and the base model has none such: ", module));
}

// A below each other, B in blocks. Those without an adapter have zeros.
absl::Status Join(const Place& place, const std::map<std::string, TensorHeader>& base,
                  const std::map<std::string, TensorBytes>& folded, const std::string& name,
                  std::map<std::string, TensorBytes>& out) {
  struct Part {
    const TensorBytes* a = nullptr;
    const TensorBytes* b = nullptr;
    int64_t rows = 0;
  };
  std::vector<Part> parts;
  int64_t rank = 0;
  int64_t rows = 0;
  for (const std::string_view pattern : place.module->parts) {
    const std::string module = WithNumber(pattern, place.number);
    const auto a = folded.find(module + kComfyDown);
    Part part;
    if (a != folded.end()) {
      part = {&a->second, &folded.at(module + kComfyUp), folded.at(module + kComfyUp).shape[0]};
      rank += a->second.shape[0];
    } else {
      OXBOW_ASSIGN_OR_RETURN(part.rows, ComfyRowsOf(base, module));
    }
    rows += part.rows;
    parts.push_back(part);
  }
  TensorBytes a{.dtype = DType::kF32, .shape = {rank, 0}};
  TensorBytes b{.dtype = DType::kF32, .shape = {rows, rank}};
  b.data.assign(static_cast<size_t>(rows * rank) * sizeof(float), '\0');
  int64_t row = 0;
  int64_t column = 0;
  for (const Part& part : parts) {
    if (part.a != nullptr) {
      const int64_t own = part.a->shape[0];
      const size_t width = static_cast<size_t>(own) * sizeof(float);
      a.shape[1] = part.a->shape[1];
      a.data += part.a->data;
      for (int64_t i = 0; i < part.rows; ++i) {
        part.b->data.copy(
            b.data.data() + static_cast<size_t>((row + i) * rank + column) * sizeof(float), width,
            static_cast<size_t>(i) * width);
      }
      column += own;
    }
    row += part.rows;
  }
  out[name + kComfyDown] = std::move(a);
  out[name + kComfyUp] = place.module->halves_swapped ? HalvesSwapped(std::move(b)) : std::move(b);
  return absl::OkStatus();
}

}  // namespace

const ComfyNames* ComfyNamesOf(std::string_view transformer_class) {
  static const auto& table = *new std::vector<ComfyNames>{
      {"SD3Transformer2DModel", ComfyKnows::kDiffusers, StableDiffusion3()},
      {"FluxTransformer2DModel", ComfyKnows::kDiffusers, FluxOne()},
      {"Flux2Transformer2DModel", ComfyKnows::kDiffusers, FluxTwo()},
      {"QwenImageTransformer2DModel", ComfyKnows::kAlike, {}},
      {"ZImageTransformer2DModel", ComfyKnows::kAlike, ZImage()},
      {"WanTransformer3DModel", ComfyKnows::kNative, Wan()},
      {"LTXVideoTransformer3DModel", ComfyKnows::kAlike, LtxVideo()},
      {"HunyuanVideoTransformer3DModel", ComfyKnows::kNative, HunyuanVideo()},
  };
  for (const ComfyNames& row : table) {
    if (row.transformer_class == transformer_class) return &row;
  }
  return nullptr;
}

std::optional<std::string> NumberIn(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find(kNumber);
  if (at == std::string_view::npos) {
    return pattern == name ? std::optional<std::string>("") : std::nullopt;
  }
  const std::string_view before = pattern.substr(0, at);
  const std::string_view after = pattern.substr(at + kNumber.size());
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after)) {
    return std::nullopt;
  }
  const std::string number(name.substr(before.size(), name.size() - before.size() - after.size()));
  const bool digits = std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  return digits ? std::optional(number) : std::nullopt;
}

std::string WithNumber(std::string_view pattern, std::string_view number) {
  std::string name(pattern);
  const size_t at = name.find(kNumber);
  if (at != std::string::npos) name.replace(at, kNumber.size(), number);
  return name;
}

absl::StatusOr<std::map<std::string, TensorBytes>> ComfyTensors(
    std::string_view transformer_class, const std::map<std::string, TensorHeader>& base,
    const LoraExport& lora) {
  const ComfyNames* const names = ComfyNamesOf(transformer_class);
  if (names == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("ComfyUI's names are not known for this network; export --format diffusers: ",
                     std::string(transformer_class)));
  }
  const std::map<std::string, TensorBytes> folded = FoldedTensors(lora);
  std::map<std::string, TensorBytes> out;
  for (const auto& [name, a] : folded) {
    if (!name.ends_with(kComfyDown)) continue;
    const std::string module = name.substr(0, name.size() - std::string_view(kComfyDown).size());
    const std::optional<Place> place = PlaceOf(*names, module);
    const bool diffusers = names->knows == ComfyKnows::kDiffusers;
    if (place && (place->module->native_only || !diffusers)) {
      const std::string native =
          absl::StrCat(kNative, WithNumber(place->module->name, place->number));
      if (!out.contains(native + kComfyDown)) {
        OXBOW_RETURN_IF_ERROR(Join(*place, base, folded, native, out));
      }
      continue;
    }
    if (!place && names->knows == ComfyKnows::kNative) {
      return absl::FailedPreconditionError(
          absl::StrCat("ComfyUI has no name for this module of the network: ", module));
    }
    const std::string alike = (diffusers ? "transformer." : kNative) + module;
    out[alike + kComfyDown] = a;
    out[alike + kComfyUp] = folded.at(module + kComfyUp);
  }
  return out;
}

}  // namespace oxbow::io
