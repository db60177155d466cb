// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/gelu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/model/fused/gelu_kernel.h"

namespace oxbow::model::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 1 << 15;  // Values that are worth a thread.

at::Tensor Forward(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const float* const from = x.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    GeluTanh(from + begin, to + begin, end - begin);
  });
  return y;
}

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return Forward(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    const float* const values = x.const_data_ptr<float>();
    const float* const from = dy.const_data_ptr<float>();
    float* const to = dx.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      GeluTanhGradient(values + begin, from + begin, to + begin, end - begin);
    });
    return {dx};
  }
};

}  // namespace

at::Tensor GeluTanh(const at::Tensor& x) {
  if (!x.is_cpu() || x.scalar_type() != at::kFloat) return at::gelu(x, "tanh");
  const at::Tensor contiguous = x.contiguous();
  const bool trains = at::GradMode::is_enabled() && x.requires_grad();
  return trains ? GeluFunction::apply(contiguous) : Forward(contiguous);
}

}  // namespace oxbow::model::fused
