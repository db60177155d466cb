// SPDX-License-Identifier: Apache-2.0
#include "core/model/layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/model/adapted_linears.h"
#include "core/model/fused/gelu.h"
#include "core/model/int8_weights.h"
#include "core/model/packed_weights.h"

namespace oxbow::model {
namespace {

// Products with fewer results take other paths in a CPU's library, by the place of a row among the
// others, unless what they sum comes in fours.
constexpr int64_t kResultsMin = 12;
constexpr int64_t kSummedAtOnce = 4;
// MKL on Intel's processors with AVX-512 takes another path up to ten rows.
constexpr int64_t kProductRowsMin = 16;

// x with rows of zeros behind it, so that a row's bits do not depend on how many there are.
at::Tensor EnoughRows(const at::Tensor& rows) {
  const int64_t lacking = kProductRowsMin - rows.size(0);
  if (lacking <= 0 || !rows.is_cpu()) return rows;
  return at::constant_pad_nd(rows, {0, 0, 0, lacking});
}

// x and W with zeros behind what x W^T sums, where a row's bits would depend on its place.
std::pair<at::Tensor, at::Tensor> Summed(const at::Tensor& rows, const at::Tensor& weight) {
  const int64_t over = weight.size(1) % kSummedAtOnce;
  if (over == 0 || weight.size(0) >= kResultsMin || !rows.is_cpu()) return {rows, weight};
  const std::array<int64_t, 2> zeros = {0, kSummedAtOnce - over};
  return {at::constant_pad_nd(rows, zeros), at::constant_pad_nd(weight, zeros)};
}

at::Tensor Product(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  if (weight.is_mkldnn()) return PackedProduct(rows, weight, bias);
  const auto [x, w] = Summed(rows, weight);
  if (!bias.defined()) return at::mm(x, w.t());
  return at::addmm(bias, x, w.t());
}

at::Tensor Product(const at::Tensor& rows, const Linear& linear) {
  if (!linear.scale.defined()) return Product(rows, linear.weight, linear.bias);
  return Int8Product(rows, {linear.weight, linear.scale}, linear.bias);
}

// Whether one product of side by side weights does for linears of one input, and is faster.
bool GoTogether(at::ArrayRef<Linear> linears) {
  return std::ranges::all_of(linears, [&](const Linear& linear) {
    return !linear.weight.is_mkldnn() && !linear.scale.defined() && !linear.lora_a.defined() &&
           linear.weight.size(1) <= kTogetherWidthMax &&
           linear.bias.defined() == linears[0].bias.defined();
  });
}

// Without the rows that EnoughRows has added.
at::Tensor Reshaped(const at::Tensor& rows, at::IntArrayRef like) {
  std::vector<int64_t> shape = like.vec();
  const int64_t count = c10::multiply_integers(like.slice(0, like.size() - 1));
  shape.back() = rows.size(1);
  return (rows.size(0) == count ? rows : rows.narrow(0, 0, count)).view(shape);
}

// Adds its low-rank product. y is the caller's to overwrite.
at::Tensor AddLora(const at::Tensor& y, const at::Tensor& rows, const Linear& linear) {
  if (!linear.lora_a.defined()) return y;
  const auto [x, w] = Summed(Product(rows, linear.lora_a, {}), linear.lora_b);
  if (!y.is_cuda()) return at::addmm(y, x, w.t(), 1, linear.lora_scale);
  // A GPU's addmm would copy y first. Autocast knows no form in place.
  const at::ScalarType type = y.scalar_type();
  return at::Tensor(y).addmm_(x.to(type), w.to(type).t(), 1, linear.lora_scale);
}

}  // namespace

at::Tensor Linear::operator()(const at::Tensor& x) const {
  if (const auto adapted = ApplyFrozen(x, *this); !adapted.empty()) return adapted[0];
  const at::Tensor rows = EnoughRows(x.reshape({-1, x.size(-1)}));
  return Reshaped(AddLora(Product(rows, *this), rows, *this), x.sizes());
}

std::vector<at::Tensor> ApplyEach(const at::Tensor& x, at::ArrayRef<Linear> linears) {
  if (!GoTogether(linears)) {
    std::vector<at::Tensor> parts;
    for (const Linear& linear : linears) parts.push_back(linear(x));
    return parts;
  }
  std::vector<at::Tensor> weights, biases;
  std::vector<int64_t> widths;
  for (const Linear& linear : linears) {
    weights.push_back(linear.weight);
    if (linear.bias.defined()) biases.push_back(linear.bias);
    widths.push_back(linear.weight.size(0));
  }
  const at::Tensor rows = EnoughRows(x.reshape({-1, x.size(-1)}));
  const at::Tensor bias = biases.empty() ? at::Tensor() : at::cat(biases);
  return Reshaped(Product(rows, at::cat(weights), bias), x.sizes()).split_with_sizes(widths, -1);
}

at::Tensor GeluTanh(const at::Tensor& x) { return fused::GeluTanh(x); }

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  const at::Tensor o = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                                        v.transpose(1, 2), {}, 0.0, causal);
  return o.transpose(1, 2).reshape({q.size(0), q.size(1), q.size(2) * q.size(3)});
}

at::Tensor PadRows(const at::Tensor& x) {
  if (x.size(0) >= kRowsMin) return x;
  return x.index_select(0, at::arange(kRowsMin, x.options().dtype(at::kLong)).remainder(x.size(0)));
}

at::Tensor BroadcastRows(const at::Tensor& x, int64_t rows) {
  if (x.size(0) == rows) return x;
  OXBOW_CHECK(x.size(0) == 1) << x.size(0) << " rows for " << rows;
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = rows;
  return x.expand(shape);
}

}  // namespace oxbow::model
