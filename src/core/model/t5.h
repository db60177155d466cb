// SPDX-License-Identifier: Apache-2.0
// T5 v1.1 text encoder (arXiv:1910.10683, gated as in arXiv:2002.05202), as transformers'
// T5EncoderModel.
//
//   x_0 = tokens                              N(x) = x / rms(x) * w, no bias anywhere
//   x' = x + A(N(x))                          A: softmax(q k^T + B) v, not divided by sqrt(d)
//   x_{i+1} = x' + W_o (gelu(W_0 n) * W_1 n)  n = N(x')
//   y = N(x_L)
//
// B is a learned bias per head and bucket of (key - query): near distances have a bucket each, far
// ones share logarithmically wider ones. The first block's B serves every block; UMT5
// (arXiv:2304.09151) has one per block.
//
// Weights may be float32, bfloat16 or float16, and products are taken in their type. Norms and the
// sum of the blocks are float32 always, and in float16 W_o is float32 too: its products overflow.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// Keys and defaults of text_encoder_3/config.json.
struct T5Params {
  int64_t vocab_size = 32128;
  int64_t d_model = 512;
  int64_t d_kv = 64;
  int64_t d_ff = 2048;
  int64_t num_layers = 6;
  int64_t num_heads = 8;
  int64_t relative_attention_num_buckets = 32;
  int64_t relative_attention_max_distance = 128;
  double layer_norm_epsilon = 1e-6;
  bool bias_per_block = false;  // "model_type": "umt5"
};

// Unknown keys are ignored. kInvalidArgument, also for feed-forward layers other than gated-gelu
// (those of the first T5).
absl::StatusOr<T5Params> ParseT5Config(const std::string& config_json);

// Every tensor under its published name, the token table as "shared.weight".
Shapes T5Shapes(const T5Params& params);

// The name that a tensor of a file has in T5Shapes.
std::string PublishedT5Name(const std::string& name);

// The type to hold a tensor of a checkpoint in if its products are to be taken in `type`.
at::ScalarType T5StorageType(const std::string& name, at::ScalarType type);

class T5Encoder {
 public:
  virtual ~T5Encoder() = default;

  // ids [B, S] int64 -> [B, S, d_model] float32. mask [B, S] bool: which tokens are attended to;
  // undefined: all, padding included, as diffusion models want it. A row does not depend on the
  // others. Requires a true value in every row of a mask.
  virtual at::Tensor Encode(const at::Tensor& ids, const at::Tensor& mask) const = 0;
};

// Binds (does not copy) `tensors`: all of T5Shapes, of T5StorageType for one type; the token table
// may be called "encoder.embed_tokens.weight" or be there under both names. kInvalidArgument names
// every missing, extra or misshapen tensor, and two tables that differ.
absl::StatusOr<std::unique_ptr<T5Encoder>> MakeT5Encoder(const T5Params& params,
                                                         const NamedTensors& tensors);

}  // namespace oxbow::model
