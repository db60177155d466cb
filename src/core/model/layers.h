// SPDX-License-Identifier: Apache-2.0
// The layers that transformers share. All are differentiable. Without an AutocastScope they take
// and return float32. Within one (device.h), what goes into products and attention has the scope's
// type, cast once; the sums that run through a network stay in float32.
//
// A row of a result depends on its own row alone, bit for bit, from kRowsMin rows on: below that,
// matrix products take other paths. This holds for one torch thread; several split the rows of a
// product by their number.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace oxbow::model {

inline constexpr int64_t kRowsMin = 8;

// Above this width the products dominate, and copying weights side by side is not worth it.
inline constexpr int64_t kTogetherWidthMax = 512;

// y = x W^T + b [+ scale (x A^T) B^T].
struct Linear {
  at::Tensor weight;  // [out, in], perhaps packed (packed_weights.h) or int8 (int8_weights.h)
  at::Tensor scale;   // [out, 1], of an int8 weight
  at::Tensor bias;    // [out], or undefined
  at::Tensor lora_a;  // [r, in], or undefined
  at::Tensor lora_b;  // [out, r]
  double lora_scale = 1;

  at::Tensor operator()(const at::Tensor& x) const;  // [..., in] -> [..., out]
};

// Several linears of one input: [..., in] -> [..., out_i] for each. Where one product does for all,
// the results are views of its.
std::vector<at::Tensor> ApplyEach(const at::Tensor& x, at::ArrayRef<Linear> linears);

at::Tensor GeluTanh(const at::Tensor& x);

// Scaled dot-product attention over heads: softmax(q k^T / sqrt(d)) v. q [B, Tq, heads, d]; k, v
// [B, T, heads, d] -> [B, Tq, heads * d]. Last dimensions contiguous. `causal`: position i attends
// to positions up to i.
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal);

// The first kRowsMin rows of x repeated for ever, if x has fewer; else x.
at::Tensor PadRows(const at::Tensor& x);

// x [1, ...] as [rows, ...]. Requires 1 or `rows` rows.
at::Tensor BroadcastRows(const at::Tensor& x, int64_t rows);

}  // namespace oxbow::model
