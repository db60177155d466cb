// SPDX-License-Identifier: Apache-2.0
#include "core/model/clip_vision.h"

#include <ATen/ATen.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/clip_blocks.h"
#include "core/model/config_sizes.h"
#include "core/model/layers.h"

namespace oxbow::model {
namespace {

constexpr char kVisionPositionIds[] = "vision_model.embeddings.position_ids";
constexpr int64_t kPixelChannels = 3;

class ClipVision final : public ClipVisionEncoder {
 public:
  ClipVision(Binding& bind, const ClipVisionParams& p)
      : params_(p),
        class_(bind.Take("vision_model.embeddings.class_embedding", {p.hidden_size})),
        patches_(bind.Take("vision_model.embeddings.patch_embedding.weight",
                           {p.hidden_size, kPixelChannels, p.patch_size, p.patch_size})),
        positions_(bind.Take("vision_model.embeddings.position_embedding.weight",
                             {p.patches() + 1, p.hidden_size})),
        // The misspelling is the published name.
        first_norm_(bind, "vision_model.pre_layrnorm", p.hidden_size, p.layer_norm_eps),
        last_norm_(bind, "vision_model.post_layernorm", p.hidden_size, p.layer_norm_eps),
        projection_(
            bind.TakeLinear("visual_projection", p.hidden_size, p.projection_dim, /*bias=*/false)) {
    for (int64_t i = 0; i < p.num_hidden_layers; ++i) {
      blocks_.emplace_back(bind, absl::StrCat("vision_model.encoder.layers.", i),
                           BlockShapeOf(p, /*causal=*/false));
    }
  }

  at::Tensor Encode(const at::Tensor& pixels) const override {
    OXBOW_CHECK(pixels.dim() == 4 && pixels.size(1) == kPixelChannels &&
                pixels.size(2) == params_.image_size && pixels.size(3) == params_.image_size)
        << "pixels " << pixels.sizes() << " for images of " << params_.image_size;
    at::Tensor hidden = first_norm_(Embed(pixels.to(class_.scalar_type())) + positions_);
    for (size_t i = 0; i + 1 < blocks_.size(); ++i) hidden = blocks_[i](hidden);
    // Nothing reads the patches behind the last block.
    const at::Tensor pooled = last_norm_(blocks_.back().First(hidden));
    return projection_(PadRows(pooled)).narrow(0, 0, pixels.size(0));
  }

 private:
  // [B, 3, S, S] -> [B, 1 + patches, hidden]. A convolution whose stride is its size is one
  // product.
  at::Tensor Embed(const at::Tensor& pixels) const {
    const int64_t side = params_.patch_size, across = params_.image_size / side;
    const at::Tensor patches = pixels.view({-1, kPixelChannels, across, side, across, side})
                                   .permute({0, 2, 4, 1, 3, 5})
                                   .reshape({pixels.size(0), across * across, -1});
    const Linear embed{.weight = patches_.flatten(1)};
    return at::cat({class_.expand({pixels.size(0), 1, -1}), embed(patches)}, 1);
  }

  const ClipVisionParams params_;
  const at::Tensor class_, patches_, positions_;
  const ClipNorm first_norm_, last_norm_;
  const Linear projection_;
  std::vector<ClipBlock> blocks_;
};

constexpr SizeKey<ClipVisionParams> kClipVisionFields[] = {
    {"hidden_size", &ClipVisionParams::hidden_size},
    {"intermediate_size", &ClipVisionParams::intermediate_size},
    {"projection_dim", &ClipVisionParams::projection_dim},
    {"num_hidden_layers", &ClipVisionParams::num_hidden_layers},
    {"num_attention_heads", &ClipVisionParams::num_attention_heads},
    {"image_size", &ClipVisionParams::image_size},
    {"patch_size", &ClipVisionParams::patch_size}};
constexpr int64_t kClipVisionSizeMax = 1 << 16;

absl::Status BadClipVision(const std::string& what) {
  return absl::InvalidArgumentError("image encoder config: " + what);
}

absl::Status CheckDivisions(const ClipVisionParams& p) {
  if (p.hidden_size % p.num_attention_heads != 0) {
    return BadClipVision(absl::StrCat("hidden_size not divisible by heads: ", p.hidden_size, ", ",
                                      p.num_attention_heads));
  }
  if (p.image_size % p.patch_size != 0) {
    return BadClipVision(
        absl::StrCat("image_size not divisible by patch_size: ", p.image_size, ", ", p.patch_size));
  }
  return absl::OkStatus();
}

// Names and shapes of what an encoder binds.
Binding VisionBindingOf(const ClipVisionParams& params) {
  Binding bind;
  const ClipVision shape_only(bind, params);
  return bind;
}

}  // namespace

absl::StatusOr<ClipVisionParams> ParseClipVisionConfig(const std::string& config_json) {
  const auto json = ParseJson(config_json);
  if (!json.is_object()) return BadClipVision("not a JSON object");
  ClipVisionParams params;
  OXBOW_RETURN_IF_ERROR(
      ReadSizes(json, kClipVisionFields, kClipVisionSizeMax, "image encoder config", params));
  if (json.value("num_channels", nlohmann::json(kPixelChannels)) != kPixelChannels) {
    return BadClipVision("num_channels other than 3: " + json["num_channels"].dump());
  }
  if (json.contains("layer_norm_eps")) {
    if (!json["layer_norm_eps"].is_number()) return BadClipVision("layer_norm_eps is not a number");
    params.layer_norm_eps = json["layer_norm_eps"].get<double>();
  }
  const auto act = json.value("hidden_act", nlohmann::json(params.hidden_act));
  if (act != "quick_gelu" && act != "gelu") {
    return BadClipVision("hidden_act other than quick_gelu or gelu: " + JsonText(act));
  }
  params.hidden_act = act.get<std::string>();
  OXBOW_RETURN_IF_ERROR(CheckDivisions(params));
  return params;
}

Shapes ClipVisionShapes(const ClipVisionParams& params) { return VisionBindingOf(params).shapes(); }

absl::StatusOr<std::unique_ptr<ClipVisionEncoder>> MakeClipVisionEncoder(
    const ClipVisionParams& params, NamedTensors weights, LinearWeights form) {
  weights.erase(kVisionPositionIds);
  if (form == LinearWeights::kPacked) PackLinears(VisionBindingOf(params).linears(), weights);
  Binding bind(weights, nullptr);
  auto encoder = std::make_unique<ClipVision>(bind, params);
  OXBOW_RETURN_IF_ERROR(bind.Finish());
  return encoder;
}

}  // namespace oxbow::model
