// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/rms_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace oxbow::model::exported {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr size_t kArgumentsOfNorm = 4;  // input, normalized_shape, weight, eps

at::Tensor RootOf(const at::Tensor& x, double eps) {
  return x.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}

// Keeps x and one number per row; PyTorch's own derivative of the spelled-out norm keeps four
// values of x's size and reads them in twice as many kernels.
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const at::Tensor root = RootOf(x, eps);
    context->save_for_backward({x, weight, root});
    return (x * root).mul_(weight);
  }

  // With n = x root and g = dy weight: dx = root (g - n mean(g n)).
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& root = saved[2];
    const at::Tensor normal = x * root;
    at::Tensor dx, dweight;
    if (context->needs_input_grad(0)) {
      const at::Tensor dnormal = gradients[0] * saved[1];
      const at::Tensor mean = (dnormal * normal).mean(-1, /*keepdim=*/true);
      dx = at::addcmul(dnormal, normal, mean, -1).mul_(root);
    }
    if (context->needs_input_grad(1)) {
      dweight = (gradients[0] * normal).sum_to_size(saved[1].sizes());
    }
    return {dx, dweight, {}};
  }
};

}  // namespace

bool NormalizeRms(torch::jit::Stack& stack) {
  if (stack.size() != kArgumentsOfNorm || !stack[2].isTensor() || !stack[3].isDouble())
    return false;
  const at::Tensor x = stack[0].toTensor();
  const at::Tensor weight = stack[2].toTensor();
  const double eps = stack[3].toDouble();
  if (x.scalar_type() != at::kFloat || weight.dim() != 1) return false;
  if (x.is_cuda()) {
    stack.assign(
        {std::get<0>(at::_fused_rms_norm(x, weight.sizes(), weight.to(x.scalar_type()), eps))});
    return true;
  }
  if (!x.is_cpu() || weight.scalar_type() != at::kFloat) return false;
  const bool trains = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  stack.assign(
      {trains ? RmsNormFunction::apply(x, weight, eps) : (x * RootOf(x, eps)).mul_(weight)});
  return true;
}

}  // namespace oxbow::model::exported
