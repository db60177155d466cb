// SPDX-License-Identifier: Apache-2.0
// The transformer blocks that CLIP's two towers share (arXiv:2103.00020), under Hugging Face's
// names: pre-norm, attention, then two linear layers around a GELU.
//
//   y = x + attention(LN_1(x)) ;  block(x) = y + W_2 gelu(W_1 LN_2(y))
//
// All run in the type of their weights: float32, bfloat16 or float16.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>

#include "core/model/binding.h"
#include "core/model/layers.h"

namespace oxbow::model {

// Layer norm with weight and bias over the last dimension.
struct ClipNorm {
  ClipNorm(Binding& bind, const std::string& name, int64_t width, double eps);
  at::Tensor operator()(const at::Tensor& x) const;
  at::Tensor weight, bias;
  double eps;
};

struct ClipBlockShape {
  int64_t width = 0;
  int64_t intermediate = 0;
  int64_t heads = 1;
  bool quick_gelu = true;  // x sigmoid(1.702 x); else the exact one, with erf.
  bool causal = false;
  double eps = 1e-5;
};

// The blocks of an encoder whose params have transformers' names.
template <typename Params>
ClipBlockShape BlockShapeOf(const Params& p, bool causal) {
  return {.width = p.hidden_size,
          .intermediate = p.intermediate_size,
          .heads = p.num_attention_heads,
          .quick_gelu = p.hidden_act == "quick_gelu",
          .causal = causal,
          .eps = p.layer_norm_eps};
}

class ClipBlock {
 public:
  // Tensors NAME.layer_norm1.weight, NAME.self_attn.q_proj.weight, ...
  ClipBlock(Binding& bind, const std::string& name, const ClipBlockShape& shape);

  at::Tensor operator()(const at::Tensor& x) const;  // [B, T, width] -> [B, T, width]

  // The first position of that alone: [B, T, width] -> [B, width]. Requires a block that is not
  // causal.
  at::Tensor First(const at::Tensor& x) const;

 private:
  at::Tensor AfterAttention(const at::Tensor& x, const at::Tensor& attended) const;
  at::Tensor Activate(const at::Tensor& x) const;

  const ClipBlockShape shape_;
  const ClipNorm norm1_, norm2_;
  const std::array<Linear, 3> qkv_;
  const Linear out_, fc1_, fc2_;
};

}  // namespace oxbow::model
