// SPDX-License-Identifier: Apache-2.0
#include "core/model/clip_blocks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

namespace oxbow::model {

ClipNorm::ClipNorm(Binding& bind, const std::string& name, int64_t width, double eps)
    : weight(bind.Take(name + ".weight", {width})),
      bias(bind.Take(name + ".bias", {width})),
      eps(eps) {}

at::Tensor ClipNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

ClipBlock::ClipBlock(Binding& bind, const std::string& name, const ClipBlockShape& shape)
    : shape_(shape),
      norm1_(bind, name + ".layer_norm1", shape.width, shape.eps),
      norm2_(bind, name + ".layer_norm2", shape.width, shape.eps),
      qkv_{bind.TakeLinear(name + ".self_attn.q_proj", shape.width, shape.width),
           bind.TakeLinear(name + ".self_attn.k_proj", shape.width, shape.width),
           bind.TakeLinear(name + ".self_attn.v_proj", shape.width, shape.width)},
      out_(bind.TakeLinear(name + ".self_attn.out_proj", shape.width, shape.width)),
      fc1_(bind.TakeLinear(name + ".mlp.fc1", shape.width, shape.intermediate)),
      fc2_(bind.TakeLinear(name + ".mlp.fc2", shape.intermediate, shape.width)) {}

at::Tensor ClipBlock::operator()(const at::Tensor& x) const {
  std::vector<at::Tensor> parts = ApplyEach(norm1_(x), qkv_);
  for (at::Tensor& part : parts) {
    part = part.view({x.size(0), x.size(1), shape_.heads, x.size(2) / shape_.heads});
  }
  return AfterAttention(x, Attend(parts[0], parts[1], parts[2], shape_.causal));
}

at::Tensor ClipBlock::First(const at::Tensor& x) const {
  const int64_t heads = shape_.heads, depth = x.size(2) / heads;
  const at::Tensor all = norm1_(x), first = all.narrow(1, 0, 1);
  std::vector<at::Tensor> read = ApplyEach(all, {qkv_[1], qkv_[2]});
  for (at::Tensor& part : read) part = part.view({x.size(0), x.size(1), heads, depth});
  const at::Tensor query = qkv_[0](first).view({x.size(0), 1, heads, depth});
  const at::Tensor attended = Attend(query, read[0], read[1], /*causal=*/false);
  return AfterAttention(x.narrow(1, 0, 1), attended).squeeze(1);
}

at::Tensor ClipBlock::AfterAttention(const at::Tensor& x, const at::Tensor& attended) const {
  const at::Tensor y = x + out_(attended);
  return y + fc2_(Activate(fc1_(norm2_(y))));
}

// Without gradients the new tensor is written in place. The bits are the same.
at::Tensor ClipBlock::Activate(const at::Tensor& x) const {
  if (!shape_.quick_gelu) return at::gelu(x);
  if (at::GradMode::is_enabled()) return x * at::sigmoid(1.702 * x);
  return (1.702 * x).sigmoid_().mul_(x);
}

}  // namespace oxbow::model
