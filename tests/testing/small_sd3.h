// SPDX-License-Identifier: Apache-2.0
// A transformer small enough for unit tests: every kind of layer once.
#pragma once

#include "core/model/sd3.h"

namespace oxbow::model {

// Latents [2, 8, 8] at most, prompts of width 12 and 10; the block of that index has two
// attentions.
inline Sd3Params SmallSd3(int64_t blocks, int64_t dual) {
  return {.sample_size = 8,
          .patch_size = 2,
          .in_channels = 2,
          .num_layers = blocks,
          .attention_head_dim = 8,
          .num_attention_heads = 2,
          .joint_attention_dim = 12,
          .caption_projection_dim = 16,
          .pooled_projection_dim = 10,
          .out_channels = 2,
          .pos_embed_max_size = 4,
          .dual_attention_layers = {dual},
          .qk_rms_norm = true};
}

}  // namespace oxbow::model
