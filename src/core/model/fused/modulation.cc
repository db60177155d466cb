// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/modulation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/model/fused/modulation_kernel.h"

namespace oxbow::model::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kWorthAThread = 1 << 15;  // Values.

bool IsPlain(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

bool AreTokens(const at::Tensor& x) {
  return IsPlain(x) && x.dim() == 3 && x.is_contiguous() && x.numel() > 0 &&
         x.size(2) % kModulationLanes == 0;
}

// [B, D] with values side by side.
bool IsOfSamples(const at::Tensor& condition, const at::Tensor& x) {
  return IsPlain(condition) && condition.dim() == 2 && condition.size(0) == x.size(0) &&
         condition.size(1) == x.size(2) && condition.stride(1) == 1;
}

bool Train(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  return at::GradMode::is_enabled() &&
         (a.requires_grad() || b.requires_grad() || c.requires_grad());
}

// Calls `work` with the number of each sample of x [B, T, D].
template <class Work>
void ForSamples(const at::Tensor& x, const Work& work) {
  const int64_t values = x.size(1) * x.size(2);
  at::parallel_for(0, x.size(0), std::max<int64_t>(1, kWorthAThread / values),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t b = begin; b < end; ++b) work(b);
                   });
}

const float* From(const at::Tensor& x, int64_t sample) {
  return x.const_data_ptr<float>() + sample * x.stride(0);
}
float* To(const at::Tensor& x, int64_t sample) {
  return x.mutable_data_ptr<float>() + sample * x.stride(0);
}

Tokens TokensOf(const at::Tensor& x) { return {x.size(1), x.size(2)}; }

at::Tensor Modulated(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                     double eps, const at::Tensor& moments) {
  at::Tensor y = at::empty_like(x);
  ForSamples(x, [&](int64_t b) {
    ModulateTokens(TokensOf(x), From(x, b), From(scale, b), From(shift, b), static_cast<float>(eps),
                   To(y, b), To(moments, b));
  });
  return y;
}

at::Tensor MomentsFor(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(1), 2}, x.options());
}

struct ModulateFunction : torch::autograd::Function<ModulateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const at::Tensor& shift, double eps) {
    const at::Tensor moments = MomentsFor(x);
    const at::Tensor y = Modulated(x, scale, shift, eps, moments);
    context->save_for_backward({x, scale, moments});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &scale = saved[1], &moments = saved[2];
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor dx = at::empty_like(x);
    at::Tensor dscale = at::empty(scale.sizes(), scale.options()), dshift = at::empty_like(dscale);
    ForSamples(x, [&](int64_t b) {
      ModulateTokensGradient(TokensOf(x), From(x, b), From(scale, b), From(moments, b), From(dy, b),
                             To(dx, b), To(dscale, b), To(dshift, b));
    });
    return {dx, dscale, dshift, {}};
  }
};

at::Tensor Gated(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y) {
  at::Tensor sum = at::empty_like(x);
  ForSamples(x, [&](int64_t b) {
    GateTokens(TokensOf(x), From(x, b), From(gate, b), From(y, b), To(sum, b));
  });
  return sum;
}

struct GateFunction : torch::autograd::Function<GateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& y) {
    context->save_for_backward({gate, gate.requires_grad() ? y : at::Tensor()});
    return Gated(x, gate, y);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &y = saved[1];
    if (!y.defined()) return {gradients[0], {}, gradients[0] * gate.unsqueeze(1)};
    const at::Tensor dsum = gradients[0].contiguous();
    at::Tensor dy = at::empty_like(y), dgate = at::empty(gate.sizes(), gate.options());
    ForSamples(y, [&](int64_t b) {
      GateTokensGradient(TokensOf(y), From(gate, b), From(y, b), From(dsum, b), To(dy, b),
                         To(dgate, b));
    });
    return {gradients[0], dgate, dy};
  }
};

}  // namespace

std::optional<at::Tensor> NormModulateOnCpu(const at::Tensor& x, const at::Tensor& scale,
                                            const at::Tensor& shift, double eps) {
  if (!AreTokens(x) || !IsOfSamples(scale, x) || !IsOfSamples(shift, x)) return std::nullopt;
  if (Train(x, scale, shift)) return ModulateFunction::apply(x, scale, shift, eps);
  return Modulated(x, scale, shift, eps, MomentsFor(x));
}

std::optional<at::Tensor> AddGatedOnCpu(const at::Tensor& x, const at::Tensor& gate,
                                        const at::Tensor& y) {
  if (!AreTokens(x) || !AreTokens(y) || x.sizes() != y.sizes() || !IsOfSamples(gate, x)) {
    return std::nullopt;
  }
  return Train(x, gate, y) ? GateFunction::apply(x, gate, y) : Gated(x, gate, y);
}

}  // namespace oxbow::model::fused
