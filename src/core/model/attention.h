// Scaled dot-product attention over heads: softmax(q k^T / sqrt(d)) v.
#pragma once

#include <ATen/core/Tensor.h>

namespace oxbow::model {

// q [B, Tq, heads, d]; k, v [B, T, heads, d] -> [B, Tq, heads * d]. Last dimensions contiguous.
// `causal`: position i attends to positions up to i.
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

}  // namespace oxbow::model
