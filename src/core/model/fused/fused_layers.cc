// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/fused_layers.h"

// Set by the build where CUDA's compiler is.
#if OXBOW_HAS_FUSED_KERNELS
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/model/fused/fused_kernels.h"
#endif

namespace oxbow::model::fused {

bool HasKernels() { return OXBOW_HAS_FUSED_KERNELS; }

#if OXBOW_HAS_FUSED_KERNELS
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool IsElement(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

Element TypeOf(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat ? Element::kFloat : Element::kBFloat16;
}

// On a GPU, of a type that kernels read, and aligned for loads of 16 bytes.
bool KernelFits(const at::Tensor& x) {
  return x.is_cuda() && IsElement(x) && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

bool Trains(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

Values ValuesOf(const at::Tensor& x) { return {x.const_data_ptr(), TypeOf(x)}; }
Results ResultsOf(const at::Tensor& x) { return {x.mutable_data_ptr(), TypeOf(x)}; }

// [B, D] whose rows lie `stride` apart, with values side by side.
bool FitsCondition(const at::Tensor& condition, const at::Tensor& x) {
  return KernelFits(condition) && condition.dim() == 2 && condition.size(0) == x.size(0) &&
         condition.size(1) == x.size(2) && condition.stride(1) == 1 && condition.stride(0) % 8 == 0;
}

bool FitsTokens(const at::Tensor& x) {
  return KernelFits(x) && x.dim() == 3 && x.scalar_type() == at::kFloat && x.is_contiguous() &&
         x.numel() > 0 && TakesTokens(x.size(2));
}

Rows TokenRows(const at::Tensor& x, const at::Tensor& condition) {
  return {x.size(0) * x.size(1), x.size(2), x.size(1), condition.stride(0)};
}

// The device and the stream that PyTorch uses now, for launches.
struct Launch {
  explicit Launch(const at::Tensor& x)
      : guard(x.device()), stream(c10::cuda::getCurrentCUDAStream(x.device().index())) {}
  // Throws what c10 throws: nothing between a launch and this does.
  ~Launch() noexcept(false) { C10_CUDA_KERNEL_LAUNCH_CHECK(); }
  const c10::cuda::CUDAGuard guard;
  const cudaStream_t stream;
};

struct FusedRmsNormFunction : torch::autograd::Function<FusedRmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    context->save_for_backward({x, weight});
    context->saved_data["eps"] = eps;
    at::Tensor y = at::empty_like(x);
    const Launch launch(x);
    fused::RmsNorm(ValuesOf(x), ValuesOf(weight), ResultsOf(y), RowsOf(x), static_cast<float>(eps),
                   launch.stream);
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].to(saved[0].scalar_type()).contiguous();
    at::Tensor dx = at::empty_like(saved[0]);
    const Launch launch(dx);
    RmsNormGradient(ValuesOf(saved[0]), ValuesOf(saved[1]), ValuesOf(dy), ResultsOf(dx), RowsOf(dx),
                    static_cast<float>(context->saved_data["eps"].toDouble()), launch.stream);
    return {dx, {}, {}};
  }
  static Rows RowsOf(const at::Tensor& x) { return {x.numel() / x.size(-1), x.size(-1)}; }
};

struct NormModulateFunction : torch::autograd::Function<NormModulateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, double eps, at::ScalarType out) {
    context->save_for_backward({x, scale});
    context->saved_data["eps"] = eps;
    at::Tensor y = at::empty(x.sizes(), x.options().dtype(out));
    const Launch launch(x);
    Rows rows = TokenRows(x, scale);
    fused::NormModulate(x.const_data_ptr<float>(), ValuesOf(scale), ValuesOf(shift), ResultsOf(y),
                        rows, static_cast<float>(eps), launch.stream);
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(saved[0]);
    const Launch launch(dx);
    NormModulateGradient(saved[0].const_data_ptr<float>(), ValuesOf(saved[1]), ValuesOf(dy),
                         dx.mutable_data_ptr<float>(), TokenRows(dx, saved[1]),
                         static_cast<float>(context->saved_data["eps"].toDouble()), launch.stream);
    return {dx, {}, {}, {}, {}};
  }
};

struct AddGatedFunction : torch::autograd::Function<AddGatedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& y) {
    context->save_for_backward({gate});
    context->saved_data["type"] = y.scalar_type();
    at::Tensor sum = at::empty_like(x);
    const Launch launch(x);
    fused::AddGated(x.const_data_ptr<float>(), ValuesOf(gate), ValuesOf(y),
                    sum.mutable_data_ptr<float>(), TokenRows(x, gate), launch.stream);
    return sum;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor gate = context->get_saved_variables()[0];
    const at::Tensor dsum = gradients[0].contiguous();
    at::Tensor dy =
        at::empty(dsum.sizes(), dsum.options().dtype(context->saved_data["type"].toScalarType()));
    const Launch launch(dy);
    AddGatedGradient(ValuesOf(gate), dsum.const_data_ptr<float>(), ResultsOf(dy),
                     TokenRows(dsum, gate), launch.stream);
    return {gradients[0], {}, dy};
  }
};

}  // namespace

std::optional<at::Tensor> RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!KernelFits(x) || !KernelFits(weight) || Trains(weight) || !x.is_contiguous() ||
      !weight.is_contiguous() || x.numel() == 0 || !TakesHeads(TypeOf(x), x.size(-1))) {
    return std::nullopt;
  }
  return FusedRmsNormFunction::apply(x, weight, eps);
}

std::optional<at::Tensor> NormModulate(const at::Tensor& x, const at::Tensor& scale,
                                       const at::Tensor& shift, double eps, at::ScalarType out) {
  if (!FitsTokens(x) || !FitsCondition(scale, x) || !FitsCondition(shift, x) ||
      scale.scalar_type() != shift.scalar_type() || scale.stride(0) != shift.stride(0) ||
      Trains(scale) || Trains(shift) || (out != at::kFloat && out != at::kBFloat16)) {
    return std::nullopt;
  }
  return NormModulateFunction::apply(x, scale, shift, eps, out);
}

std::optional<at::Tensor> AddGated(const at::Tensor& x, const at::Tensor& gate,
                                   const at::Tensor& y) {
  if (!FitsTokens(x) || !FitsCondition(gate, x) || !KernelFits(y) || y.sizes() != x.sizes() ||
      !y.is_contiguous() || Trains(gate)) {
    return std::nullopt;
  }
  return AddGatedFunction::apply(x, gate, y);
}

#else

std::optional<at::Tensor> RmsNorm(const at::Tensor&, const at::Tensor&, double) {
  return std::nullopt;
}
std::optional<at::Tensor> NormModulate(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       double, at::ScalarType) {
  return std::nullopt;
}
std::optional<at::Tensor> AddGated(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return std::nullopt;
}

#endif

}  // namespace oxbow::model::fused
