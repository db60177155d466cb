// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/biased_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace oxbow::model::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowGrain = 32768;  // Values of a thread's share, at least.

bool IsFloatOnCpu(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

at::Tensor Product(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias) {
  at::Tensor y = at::empty({rows.size(0), weight.size(0)}, rows.options());
  const int64_t width = y.size(1);
  const float* const from = bias.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  at::parallel_for(0, y.size(0), kRowGrain / std::max<int64_t>(width, 1) + 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       std::copy_n(from, width, to + row * width);
                     }
                   });
  return y.addmm_(rows, weight.t());
}

// The gradients are those that PyTorch has for addmm, by the same products.
struct ProductFunction : torch::autograd::Function<ProductFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weight, const at::Tensor& bias) {
    // A frozen weight needs no rows: they are not kept for it.
    context->save_for_backward({weight.requires_grad() ? rows : at::Tensor(),
                                rows.requires_grad() ? weight : at::Tensor()});
    return Product(rows, weight, bias);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weight = saved[1], &dy = gradients[0];
    at::Tensor drows, dweight, dbias;
    if (context->needs_input_grad(0)) drows = at::mm(dy, weight);
    if (context->needs_input_grad(1)) dweight = at::mm(dy.t(), rows);
    if (context->needs_input_grad(2)) dbias = at::sum(dy, {0});
    return {drows, dweight, dbias};
  }
};

}  // namespace

std::optional<at::Tensor> BiasedProductOnCpu(const at::Tensor& rows, const at::Tensor& weight,
                                             const at::Tensor& bias) {
  if (!IsFloatOnCpu(rows) || !IsFloatOnCpu(weight) || !IsFloatOnCpu(bias) ||
      !bias.is_contiguous() || bias.numel() != weight.size(0)) {
    return std::nullopt;
  }
  const bool trains = at::GradMode::is_enabled() &&
                      (rows.requires_grad() || weight.requires_grad() || bias.requires_grad());
  return trains ? ProductFunction::apply(rows, weight, bias) : Product(rows, weight, bias);
}

}  // namespace oxbow::model::fused
