// SPDX-License-Identifier: Apache-2.0
#include "io/mask2former_names.h"

#include <cctype>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr char kMark[] = "panoptic_head.query_feat.weight";

enum class Kind : uint8_t { kWhole, kThirds, kUnfolded, kDropped };

// `#` is a number, the same on both sides; the rest of the name follows. `?` becomes q, k and v.
struct Row {
  std::string_view from, to;
  Kind kind = Kind::kWhole;
};

// After "backbone." and "model.pixel_level_module.encoder.".
constexpr Row kBackbone[] = {
    {"patch_embed.projection.", "swin.embeddings.patch_embeddings.projection."},
    {"patch_embed.norm.", "swin.embeddings.norm."},
    {"stages.#.blocks.#.norm1.", "swin.encoder.layers.#.blocks.#.layernorm_before."},
    {"stages.#.blocks.#.norm2.", "swin.encoder.layers.#.blocks.#.layernorm_after."},
    {"stages.#.blocks.#.attn.w_msa.relative_position_bias_table",
     "swin.encoder.layers.#.blocks.#.attention.relative_position_bias."
     "relative_position_bias_table"},
    {"stages.#.blocks.#.attn.w_msa.relative_position_index", "", Kind::kDropped},
    {"stages.#.blocks.#.attn.w_msa.qkv.", "swin.encoder.layers.#.blocks.#.attention.?_proj.",
     Kind::kThirds},
    {"stages.#.blocks.#.attn.w_msa.proj.", "swin.encoder.layers.#.blocks.#.attention.o_proj."},
    {"stages.#.blocks.#.ffn.layers.0.0.", "swin.encoder.layers.#.blocks.#.mlp.fc1."},
    {"stages.#.blocks.#.ffn.layers.1.", "swin.encoder.layers.#.blocks.#.mlp.fc2."},
    {"stages.#.downsample.norm.", "swin.encoder.layers.#.downsample.norm.", Kind::kUnfolded},
    {"stages.#.downsample.reduction.", "swin.encoder.layers.#.downsample.reduction.",
     Kind::kUnfolded},
    {"norm0.", "hidden_states_norms.stage1."},
    {"norm1.", "hidden_states_norms.stage2."},
    {"norm2.", "hidden_states_norms.stage3."},
    {"norm3.", "hidden_states_norms.stage4."}};

// After "panoptic_head.pixel_decoder." and "model.pixel_level_module.decoder.".
constexpr Row kPixelDecoder[] = {
    {"input_convs.#.conv.", "input_projections.#.0."},
    {"input_convs.#.gn.", "input_projections.#.1."},
    {"encoder.layers.#.attentions.0.", "encoder.layers.#.self_attn."},
    {"encoder.layers.#.norms.0.", "encoder.layers.#.self_attn_layer_norm."},
    {"encoder.layers.#.norms.1.", "encoder.layers.#.final_layer_norm."},
    {"encoder.layers.#.ffns.0.layers.0.0.", "encoder.layers.#.fc1."},
    {"encoder.layers.#.ffns.0.layers.1.", "encoder.layers.#.fc2."},
    {"level_encoding.weight", "level_embed"},
    {"lateral_convs.0.conv.", "adapter_1.0."},
    {"lateral_convs.0.gn.", "adapter_1.1."},
    {"output_convs.0.conv.", "layer_1.0."},
    {"output_convs.0.gn.", "layer_1.1."},
    {"mask_feature.", "mask_projection."}};

// After "panoptic_head." and "model.transformer_module.".
constexpr Row kDecoder[] = {
    {"transformer_decoder.layers.#.attentions.0.attn.", "decoder.layers.#.cross_attn."},
    {"transformer_decoder.layers.#.attentions.1.attn.in_proj_",
     "decoder.layers.#.self_attn.?_proj.", Kind::kThirds},
    {"transformer_decoder.layers.#.attentions.1.attn.out_proj.",
     "decoder.layers.#.self_attn.out_proj."},
    {"transformer_decoder.layers.#.norms.0.", "decoder.layers.#.cross_attn_layer_norm."},
    {"transformer_decoder.layers.#.norms.1.", "decoder.layers.#.self_attn_layer_norm."},
    {"transformer_decoder.layers.#.norms.2.", "decoder.layers.#.final_layer_norm."},
    {"transformer_decoder.layers.#.ffns.0.layers.0.0.", "decoder.layers.#.fc1."},
    {"transformer_decoder.layers.#.ffns.0.layers.1.", "decoder.layers.#.fc2."},
    {"transformer_decoder.post_norm.", "decoder.layernorm."},
    {"query_embed.", "queries_embedder."},
    {"query_feat.", "queries_features."},
    {"level_embed.", "level_embed."},
    {"mask_embed.0.", "decoder.mask_predictor.mask_embedder.0.0."},
    {"mask_embed.2.", "decoder.mask_predictor.mask_embedder.1.0."},
    {"mask_embed.4.", "decoder.mask_predictor.mask_embedder.2.0."}};

constexpr Row kClasses[] = {{"", ""}};

// `name` under the row's other pattern; nothing if it does not match.
std::optional<std::string> Renamed(const Row& row, std::string_view name) {
  std::vector<std::string> numbers;
  for (const char c : row.from) {
    size_t length = 1;
    if (c == '#') {
      length = 0;
      while (length < name.size() && std::isdigit(static_cast<unsigned char>(name[length])) != 0) {
        ++length;
      }
      numbers.emplace_back(name.substr(0, length));
      if (length == 0) return std::nullopt;
    } else if (name.empty() || name.front() != c) {
      return std::nullopt;
    }
    name.remove_prefix(length);
  }
  std::string renamed;
  size_t number = 0;
  for (const char c : row.to) renamed += c == '#' ? numbers[number++] : std::string(1, c);
  return renamed + std::string(name);
}

struct Target {
  std::string name;
  Kind kind = Kind::kWhole;
};

template <size_t n>
std::optional<Target> Find(const Row (&rows)[n], std::string_view from, const std::string& to,
                           std::string_view name) {
  if (!name.starts_with(from)) return std::nullopt;
  for (const Row& row : rows) {
    if (const auto renamed = Renamed(row, name.substr(from.size()))) {
      return Target{.name = to + *renamed, .kind = row.kind};
    }
  }
  return std::nullopt;
}

std::optional<Target> TargetOf(std::string_view name) {
  for (const auto& found : {Find(kBackbone, "backbone.", "model.pixel_level_module.encoder.", name),
                            Find(kPixelDecoder, "panoptic_head.pixel_decoder.",
                                 "model.pixel_level_module.decoder.", name),
                            Find(kClasses, "panoptic_head.cls_embed.", "class_predictor.", name),
                            Find(kDecoder, "panoptic_head.", "model.transformer_module.", name)}) {
    if (found) return found;
  }
  return std::nullopt;
}

absl::Status CannotCut(const std::string& name) {
  return absl::FailedPreconditionError("cannot be cut as mmdetection's Mask2Former has it: " +
                                       name);
}

}  // namespace

bool IsMmdetMask2Former(const std::map<std::string, TensorHeader>& headers) {
  return headers.contains(kMark);
}

absl::StatusOr<Mask2FormerNames> FromMmdet(const std::map<std::string, TensorHeader>& headers) {
  Mask2FormerNames names;
  for (const auto& [name, header] : headers) {
    const std::optional<Target> target = TargetOf(name);
    if (!target) {
      return absl::FailedPreconditionError("no tensor of mmdetection 2's Mask2Former with Swin: " +
                                           name);
    }
    if (target->kind == Kind::kDropped) continue;
    if (header.shape.empty()) return CannotCut(name);
    if (target->kind != Kind::kThirds) {
      const bool unfolded = target->kind == Kind::kUnfolded;
      if (unfolded && header.shape.back() % 4 != 0) return CannotCut(name);
      names.headers[target->name] = header;
      names.sources[target->name] = {.name = name, .unfolded = unfolded};
      continue;
    }
    if (header.shape.front() % 3 != 0) return CannotCut(name);
    TensorHeader third = header;
    third.shape.front() /= 3;
    for (int i = 0; i < 3; ++i) {
      std::string part = target->name;
      part.replace(part.find('?'), 1, 1, "qkv"[i]);
      names.headers[part] = third;
      names.sources[part] = {.name = name, .third = i};
    }
  }
  return names;
}

std::string BytesOf(const TensorSource& source, const TensorHeader& from,
                    const std::string& bytes) {
  if (source.third >= 0) {
    const size_t size = bytes.size() / 3;
    return bytes.substr(static_cast<size_t>(source.third) * size, size);
  }
  if (!source.unfolded) return bytes;
  const size_t width = WidthOf(from.dtype), columns = static_cast<size_t>(from.shape.back()),
               channels = columns / 4;
  std::string ordered;
  ordered.reserve(bytes.size());
  for (size_t row = 0; row < bytes.size(); row += columns * width) {
    for (const size_t pixel : {0, 2, 1, 3}) {  // Pixels (row, column): down before across.
      for (size_t channel = 0; channel < channels; ++channel) {
        ordered.append(bytes, row + (channel * 4 + pixel) * width, width);
      }
    }
  }
  return ordered;
}

}  // namespace oxbow::io
