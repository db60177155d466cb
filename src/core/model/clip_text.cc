// SPDX-License-Identifier: Apache-2.0
#include "core/model/clip_text.h"

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

constexpr char kPositionIds[] = "text_model.embeddings.position_ids";
constexpr int64_t kLegacyEos = 2;

class ClipText final : public ClipTextEncoder {
 public:
  ClipText(Binding& bind, const ClipTextParams& p, LinearWeights form)
      : params_(p),
        form_(form),
        tokens_(bind.Take("text_model.embeddings.token_embedding.weight",
                          {p.vocab_size, p.hidden_size})),
        positions_(bind.Take("text_model.embeddings.position_embedding.weight",
                             {p.max_position_embeddings, p.hidden_size})),
        final_norm_(bind, "text_model.final_layer_norm", p.hidden_size, p.layer_norm_eps),
        projection_(
            bind.TakeLinear("text_projection", p.hidden_size, p.projection_dim, /*bias=*/false)) {
    for (int64_t i = 0; i < p.num_hidden_layers; ++i) {
      blocks_.emplace_back(bind, absl::StrCat("text_model.encoder.layers.", i),
                           BlockShapeOf(p, /*causal=*/true));
    }
  }

  at::Tensor Encode(const at::Tensor& ids) const override {
    OXBOW_CHECK(ids.dim() == 2 && ids.size(1) <= params_.max_position_embeddings)
        << "ids " << ids.sizes() << " for " << params_.max_position_embeddings << " positions";
    // A row of a packed product has its own bits in any case.
    const at::Tensor padded = form_ == LinearWeights::kPacked ? ids : PadRows(ids);
    at::Tensor hidden = at::embedding(tokens_, padded) + positions_.narrow(0, 0, padded.size(1));
    for (const ClipBlock& block : blocks_) hidden = block(hidden);
    const at::Tensor end = EndPositions(padded).view({-1, 1, 1}).expand({-1, 1, hidden.size(2)});
    const at::Tensor pooled = final_norm_(hidden.gather(1, end).squeeze(1));
    return projection_(pooled).narrow(0, 0, ids.size(0));
  }

 private:
  // Published configs say eos_token_id 2 while their tokenizers emit the highest id.
  at::Tensor EndPositions(const at::Tensor& ids) const {
    if (params_.eos_token_id == kLegacyEos) return ids.argmax(1);
    return ids.eq(params_.eos_token_id).to(at::kInt).argmax(1);
  }

  const ClipTextParams params_;
  const LinearWeights form_;
  const at::Tensor tokens_, positions_;
  const ClipNorm final_norm_;
  const Linear projection_;
  std::vector<ClipBlock> blocks_;
};

constexpr SizeKey<ClipTextParams> kClipTextFields[] = {
    {"vocab_size", &ClipTextParams::vocab_size, 1},
    {"hidden_size", &ClipTextParams::hidden_size, 1},
    {"intermediate_size", &ClipTextParams::intermediate_size, 1},
    {"projection_dim", &ClipTextParams::projection_dim, 1},
    {"num_hidden_layers", &ClipTextParams::num_hidden_layers, 1},
    {"num_attention_heads", &ClipTextParams::num_attention_heads, 1},
    {"max_position_embeddings", &ClipTextParams::max_position_embeddings, 1},
    {"eos_token_id", &ClipTextParams::eos_token_id, 0}};
constexpr int64_t kClipTextSizeMax = 1 << 20;

absl::Status BadClipText(const std::string& what) {
  return absl::InvalidArgumentError("text encoder config: " + what);
}

// Names and shapes of what an encoder binds.
Binding BindingOf(const ClipTextParams& params) {
  Binding bind;
  const ClipText shape_only(bind, params, LinearWeights::kPlain);
  return bind;
}

}  // namespace

absl::StatusOr<ClipTextParams> ParseClipTextConfig(const std::string& config_json) {
  const nlohmann::json json = ParseJson(config_json);
  if (!json.is_object()) return BadClipText("not a JSON object");
  ClipTextParams params;
  OXBOW_RETURN_IF_ERROR(
      ReadSizes(json, kClipTextFields, kClipTextSizeMax, "text encoder config", params));
  if (json.contains("layer_norm_eps")) {
    if (!json["layer_norm_eps"].is_number()) return BadClipText("layer_norm_eps is not a number");
    params.layer_norm_eps = json["layer_norm_eps"].get<double>();
  }
  if (json.contains("hidden_act")) {
    if (!json["hidden_act"].is_string()) return BadClipText("hidden_act is not a string");
    params.hidden_act = json["hidden_act"].get<std::string>();
  }
  if (params.hidden_act != "quick_gelu" && params.hidden_act != "gelu") {
    return BadClipText("hidden_act other than quick_gelu or gelu: " + params.hidden_act);
  }
  if (params.hidden_size % params.num_attention_heads != 0) {
    return BadClipText(absl::StrCat("hidden_size not divisible by heads: ", params.hidden_size,
                                    ", ", params.num_attention_heads));
  }
  return params;
}

absl::StatusOr<std::unique_ptr<ClipTextEncoder>> MakeClipTextEncoder(const ClipTextParams& params,
                                                                     NamedTensors weights,
                                                                     LinearWeights form) {
  weights.erase(kPositionIds);
  if (form == LinearWeights::kPacked) PackLinears(BindingOf(params).linears(), weights);
  Binding bind(weights, nullptr);
  auto encoder = std::make_unique<ClipText>(bind, params, form);
  OXBOW_RETURN_IF_ERROR(bind.Finish());
  return encoder;
}

}  // namespace oxbow::model
