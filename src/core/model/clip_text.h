// SPDX-License-Identifier: Apache-2.0
// CLIP text encoder (arXiv:2103.00020), as transformers' CLIPTextModelWithProjection and, without
// W, CLIPTextModel.
//
//   h_0 = tokens + positions ;  h_{i+1} = block_i(h_i), pre-norm, causal ;  pooled = LN(h_L)[eos] W
//
// Diffusion models read hidden_states[-2] = h_{L-1}, without the final norm, and the pooled
// projection.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/lora.h"
#include "core/model/packed_weights.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// Keys and defaults of text_encoder/config.json.
struct ClipTextParams {
  int64_t vocab_size = 49408;
  int64_t hidden_size = 512;
  int64_t intermediate_size = 2048;
  int64_t projection_dim = 512;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 8;
  int64_t max_position_embeddings = 77;
  std::string hidden_act = "quick_gelu";  // or "gelu"
  double layer_norm_eps = 1e-5;
  int64_t bos_token_id = 49406;
  int64_t eos_token_id =
      49407;  // 2 in published configs, a legacy mistake: then argmax(ids) is EOS.
  int64_t pad_token_id = 1;
  bool projected = true;  // Whether W is there. No key says so: the class of the encoder does.

  int64_t pooled_width() const { return projected ? projection_dim : hidden_size; }
};

// Unknown keys are ignored where transformers gives them no meaning here. kInvalidArgument.
absl::StatusOr<ClipTextParams> ParseClipTextConfig(const std::string& config_json);

Shapes ClipTextShapes(const ClipTextParams& params);

// The name that a tensor of a file has there.
std::string PublishedClipTextName(const std::string& name);

struct ClipTextOutput {
  at::Tensor penultimate;  // [B, S, hidden]: hidden_states[-2]
  at::Tensor pooled;       // [B, pooled_width()]: text_embeds, or pooler_output without W
};

class ClipTextEncoder {
 public:
  virtual ~ClipTextEncoder() = default;

  // ids [B, S] int64, S <= max_position_embeddings, with an end-of-text token in every row.
  virtual ClipTextOutput Encode(const at::Tensor& ids) const = 0;
};

// Binds `tensors`, and copies none but those that it packs. Tolerates an int64 position_ids buffer
// and names without "text_model.". kInvalidArgument names every missing, extra or misshapen tensor.
absl::StatusOr<std::unique_ptr<ClipTextEncoder>> MakeClipTextEncoder(
    const ClipTextParams& params, NamedTensors tensors, LinearWeights form = LinearWeights::kPlain);

}  // namespace oxbow::model
