// SPDX-License-Identifier: Apache-2.0
#include "core/model/open_clip_names.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::model {
namespace {

using Renaming = std::pair<std::string_view, std::string_view>;

constexpr char kImageMark[] = "visual.conv1.weight";

// Whole names.
constexpr Renaming kSingles[] = {
    {"visual.class_embedding", "vision_model.embeddings.class_embedding"},
    {"visual.conv1.weight", "vision_model.embeddings.patch_embedding.weight"},
    {"visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"},
    {"visual.ln_pre.weight", "vision_model.pre_layrnorm.weight"},
    {"visual.ln_pre.bias", "vision_model.pre_layrnorm.bias"},
    {"visual.ln_post.weight", "vision_model.post_layernorm.weight"},
    {"visual.ln_post.bias", "vision_model.post_layernorm.bias"},
    {"token_embedding.weight", "text_model.embeddings.token_embedding.weight"},
    {"positional_embedding", "text_model.embeddings.position_embedding.weight"},
    {"ln_final.weight", "text_model.final_layer_norm.weight"},
    {"ln_final.bias", "text_model.final_layer_norm.bias"}};

// Matrices that are multiplied from the right there.
constexpr Renaming kTransposed[] = {{"visual.proj", "visual_projection.weight"},
                                    {"text_projection", "text_projection.weight"}};

constexpr Renaming kTowers[] = {{"visual.transformer.resblocks.", "vision_model.encoder.layers."},
                                {"transformer.resblocks.", "text_model.encoder.layers."}};

// After the number of a block.
constexpr Renaming kBlockParts[] = {{".ln_1.", ".layer_norm1."},
                                    {".ln_2.", ".layer_norm2."},
                                    {".attn.out_proj.", ".self_attn.out_proj."},
                                    {".mlp.c_fc.", ".mlp.fc1."},
                                    {".mlp.c_proj.", ".mlp.fc2."}};
constexpr std::string_view kFused = ".attn.in_proj_";  // weight, bias

template <size_t n>
std::string_view Find(const Renaming (&table)[n], std::string_view name) {
  for (const auto& [from, to] : table) {
    if (from == name) return to;
  }
  return {};
}

absl::Status Cut(const std::string& block, const std::string& kind, const at::Tensor& fused,
                 NamedTensors& out) {
  if (fused.dim() < 1 || fused.size(0) % 3 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("not three weights in one: ", block, std::string(kFused), kind));
  }
  const std::vector<at::Tensor> parts = fused.chunk(3);
  out[block + ".self_attn.q_proj." + kind] = parts[0];
  out[block + ".self_attn.k_proj." + kind] = parts[1];
  out[block + ".self_attn.v_proj." + kind] = parts[2];
  return absl::OkStatus();
}

// `name` without its tower's prefix begins with the block's number.
absl::Status RenameBlock(const std::string& tower, std::string_view rest, const at::Tensor& tensor,
                         NamedTensors& out) {
  const size_t dot = std::min(rest.find('.'), rest.size());
  const std::string block = tower + std::string(rest.substr(0, dot));
  const std::string_view part = rest.substr(dot);
  if (part.starts_with(kFused)) {
    return Cut(block, std::string(part.substr(kFused.size())), tensor, out);
  }
  for (const auto& [from, to] : kBlockParts) {
    if (!part.starts_with(from)) continue;
    out[absl::StrCat(block, std::string(to), std::string(part.substr(from.size())))] = tensor;
    return absl::OkStatus();
  }
  out[block + std::string(part)] = tensor;
  return absl::OkStatus();
}

absl::Status Rename(const std::string& name, const at::Tensor& tensor, NamedTensors& out) {
  if (const auto single = Find(kSingles, name); !single.empty()) {
    out[std::string(single)] = tensor;
    return absl::OkStatus();
  }
  if (const auto transposed = Find(kTransposed, name); !transposed.empty()) {
    out[std::string(transposed)] = tensor.dim() == 2 ? tensor.t() : tensor;
    return absl::OkStatus();
  }
  for (const auto& [from, to] : kTowers) {
    if (name.starts_with(from)) {
      return RenameBlock(std::string(to), std::string_view(name).substr(from.size()), tensor, out);
    }
  }
  out[name] = tensor;
  return absl::OkStatus();
}

}  // namespace

bool AreOpenClip(const NamedTensors& tensors) { return tensors.contains(kImageMark); }

absl::StatusOr<NamedTensors> FromOpenClip(const NamedTensors& tensors) {
  NamedTensors out;
  for (const auto& [name, tensor] : tensors) {
    OXBOW_RETURN_IF_ERROR(Rename(name, tensor, out));
  }
  return out;
}

}  // namespace oxbow::model
