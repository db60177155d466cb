#include "core/model/clip_blocks.h"

#include <ATen/ATen.h>

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
  const at::Tensor y = x + out_(Attend(parts[0], parts[1], parts[2], shape_.causal));
  return y + fc2_(Activate(fc1_(norm2_(y))));
}

at::Tensor ClipBlock::Activate(const at::Tensor& x) const {
  return shape_.quick_gelu ? x * at::sigmoid(1.702 * x) : at::gelu(x);
}

}  // namespace oxbow::model
