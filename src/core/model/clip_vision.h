// SPDX-License-Identifier: Apache-2.0
// CLIP image encoder (arXiv:2103.00020), a vision transformer, as transformers'
// CLIPVisionModelWithProjection.
//
//   h_0 = LN([class; patches W_p] + positions) ;  h_{i+1} = block_i(h_i)
//   embedding = LN(h_L)[0] W_v
//
// Published sizes: ViT-B/32, B/16, L/14 and H/14. Runs in the type of its weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/named_tensors.h"
#include "core/model/packed_weights.h"

namespace oxbow::model {

// Keys and defaults of config.json, or of its `vision_config`.
struct ClipVisionParams {
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int64_t projection_dim = 512;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t image_size = 224;  // Height and width in pixels.
  int64_t patch_size = 32;
  std::string hidden_act = "quick_gelu";  // or "gelu"
  double layer_norm_eps = 1e-5;

  int64_t patches() const { return image_size / patch_size * (image_size / patch_size); }
};

// Unknown keys are ignored. kInvalidArgument names the key; the patches must fill the image, which
// has three channels.
absl::StatusOr<ClipVisionParams> ParseClipVisionConfig(const std::string& config_json);

Shapes ClipVisionShapes(const ClipVisionParams& params);

class ClipVisionEncoder {
 public:
  virtual ~ClipVisionEncoder() = default;

  // pixels [B, 3, image_size, image_size], normalised -> image_embeds [B, projection_dim], not
  // normalised, of the weights' type. A row depends on its own image alone, up to rounding.
  virtual at::Tensor Encode(const at::Tensor& pixels) const = 0;
};

// Binds `weights`, and copies none but those that it packs. Tolerates an int64 position_ids buffer.
// kInvalidArgument names every missing, extra or misshapen tensor.
absl::StatusOr<std::unique_ptr<ClipVisionEncoder>> MakeClipVisionEncoder(
    const ClipVisionParams& params, NamedTensors weights,
    LinearWeights form = LinearWeights::kPlain);

}  // namespace oxbow::model
