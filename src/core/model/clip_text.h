// SPDX-License-Identifier: Apache-2.0
// The text tower of rewards' CLIPs (arXiv:2103.00020), as transformers'
// CLIPTextModelWithProjection. Prompts of pipelines are encoded by exported graphs
// (text_encoder.h).
//
//   h_0 = tokens + positions ;  h_{i+1} = block_i(h_i), pre-norm, causal ;  text = LN(h_L)[eos] W
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

// Keys and defaults of config.json's `text_config`.
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
  int64_t eos_token_id =
      49407;  // 2 in published configs, a legacy mistake: then argmax(ids) is EOS.
};

// Unknown keys are ignored where transformers gives them no meaning here. kInvalidArgument.
absl::StatusOr<ClipTextParams> ParseClipTextConfig(const std::string& config_json);

class ClipTextEncoder {
 public:
  virtual ~ClipTextEncoder() = default;

  // ids [B, S] int64, S <= max_position_embeddings, with an end-of-text token in every row ->
  // text_embeds [B, projection_dim].
  virtual at::Tensor Encode(const at::Tensor& ids) const = 0;
};

// Binds `weights`, and copies none but those that it packs. Tolerates an int64 position_ids buffer.
// kInvalidArgument names every missing, extra or misshapen tensor.
absl::StatusOr<std::unique_ptr<ClipTextEncoder>> MakeClipTextEncoder(
    const ClipTextParams& params, NamedTensors weights, LinearWeights form = LinearWeights::kPlain);

}  // namespace oxbow::model
