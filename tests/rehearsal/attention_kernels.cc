// SPDX-License-Identifier: Apache-2.0
// Fused attention: which of CUDA's kernels would be chosen, and CPU LibTorch's in its place.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "tests/rehearsal/floating_point_operations.h"
#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/launch.h"

namespace oxbow::rehearsal {
namespace {

constexpr int64_t kFlashHeadMax = 256;

// The rules of PyTorch's sdp_utils.cpp for a GPU of compute capability 8 or more.
bool TakesFlash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool has_mask) {
  const auto type = q.scalar_type();
  return !has_mask && (type == at::kBFloat16 || type == at::kHalf) && q.dim() == 4 &&
         q.size(3) <= kFlashHeadMax && q.size(3) % 8 == 0 && q.size(3) == v.size(3) &&
         q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1;
}

bool TakesEfficient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t align = q.scalar_type() == at::kFloat ? 4 : 8;
  return q.dim() == 4 && q.size(3) % align == 0 && v.size(3) % align == 0 && q.stride(3) == 1 &&
         k.stride(3) == 1 && v.stride(3) == 1;
}

int64_t Choice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const std::optional<at::Tensor>& mask, double, bool, std::optional<double>, bool) {
  const at::Context& context = at::globalContext();
  const bool has_mask = mask && mask->defined();
  const bool fits = q.scalar_type() == k.scalar_type() && k.scalar_type() == v.scalar_type();
  if (fits && context.userEnabledFlashSDP() && TakesFlash(q, k, v, has_mask)) {
    return static_cast<int64_t>(at::SDPBackend::flash_attention);
  }
  if (fits && context.userEnabledMemEfficientSDP() && TakesEfficient(q, k, v)) {
    return static_cast<int64_t>(at::SDPBackend::efficient_attention);
  }
  TORCH_CHECK(context.userEnabledMathSDP(), "No available kernel. Aborting execution.");
  return static_cast<int64_t>(at::SDPBackend::math);
}

struct Forward {
  at::Tensor out, logsumexp;
};

// As CUDA's kernels write it: [B, N, H, D], seen as [B, H, N, D].
at::Tensor HeadsBehindTokens(const at::Tensor& q, int64_t width) {
  return Empty({q.size(0), q.size(2), q.size(1), width}, q.scalar_type(), q.device())
      .transpose(1, 2);
}

Forward Attend(const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const at::Tensor& bias, double dropout, bool causal, std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, name, ": the rehearsal device draws no dropout");
  const Forward made = {HeadsBehindTokens(q, v.size(3)),
                        Empty({q.size(0), q.size(1), q.size(2)}, at::kFloat, q.device())};
  Launch launch{.name = name,
                .reads = {q, k, v},
                .writes = {made.out, made.logsumexp},
                .flop = AttentionFlop(q, k)};
  std::optional<KernelView> mask;
  if (bias.defined()) {
    launch.reads.push_back(bias);
    mask.emplace(bias);
  }
  RunOnOneDevice(launch,
                 [q = KernelView(q), k = KernelView(k), v = KernelView(v), mask, causal, scale,
                  out = KernelView(made.out), logsumexp = KernelView(made.logsumexp)] {
                   const auto [o, l] = at::_scaled_dot_product_flash_attention_for_cpu(
                       q.Tensor(), k.Tensor(), v.Tensor(), 0, causal,
                       mask ? std::optional(mask->Tensor()) : std::nullopt, scale);
                   out.Tensor().copy_(o);
                   logsumexp.Tensor().copy_(l);
                 });
  return made;
}

struct Gradients {
  at::Tensor q, k, v;
};

Gradients AttendBackward(const char* name, const at::Tensor& grad, const at::Tensor& q,
                         const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                         const at::Tensor& logsumexp, const at::Tensor& bias, bool causal,
                         std::optional<double> scale) {
  const Gradients made = {EmptyLike(q, q.device()), EmptyLike(k, q.device()),
                          EmptyLike(v, q.device())};
  Launch launch{.name = name,
                .reads = {grad, q, k, v, out, logsumexp},
                .writes = {made.q, made.k, made.v},
                .flop = 2.5 * AttentionFlop(q, k)};
  std::optional<KernelView> mask;
  if (bias.defined()) {
    launch.reads.push_back(bias);
    mask.emplace(bias);
  }
  RunOnOneDevice(
      launch, [grad = KernelView(grad), q = KernelView(q), k = KernelView(k), v = KernelView(v),
               out = KernelView(out), logsumexp = KernelView(logsumexp), mask, causal, scale,
               dq = KernelView(made.q), dk = KernelView(made.k), dv = KernelView(made.v)] {
        const auto [a, b, c] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            grad.Tensor(), q.Tensor(), k.Tensor(), v.Tensor(), out.Tensor(), logsumexp.Tensor(), 0,
            causal, mask ? std::optional(mask->Tensor()) : std::nullopt, scale);
        dq.Tensor().copy_(a);
        dk.Tensor().copy_(b);
        dv.Tensor().copy_(c);
      });
  return made;
}

using Flash = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                         at::Tensor, at::Tensor, at::Tensor>;

// Where dropout would have begun to draw.
at::Tensor Seed(const at::Tensor& like) { return Empty({2}, at::kLong, like.device()); }

Flash FlashForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout,
                   bool causal, bool, std::optional<double> scale) {
  const Forward made =
      Attend("aten::_scaled_dot_product_flash_attention", q, k, v, {}, dropout, causal, scale);
  return {made.out, made.logsumexp, {}, {}, q.size(2), k.size(2), Seed(q), Seed(q), {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor&, const at::Tensor&,
    c10::SymInt, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  const Gradients made = AttendBackward("aten::_scaled_dot_product_flash_attention_backward", grad,
                                        q, k, v, out, logsumexp, {}, causal, scale);
  return {made.q, made.k, made.v};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> EfficientForward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& bias, bool, double dropout, bool causal,
    std::optional<double> scale) {
  const Forward made = Attend("aten::_scaled_dot_product_efficient_attention", q, k, v,
                              bias.value_or(at::Tensor()), dropout, causal, scale);
  return {made.out, made.logsumexp, Seed(q), Seed(q)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> EfficientBackward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& bias, const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor&,
    const at::Tensor&, double, std::array<bool, 4> wanted, bool causal,
    std::optional<double> scale) {
  if (!grad.defined()) return {};
  TORCH_CHECK(!bias.defined() || !wanted[3], "the rehearsal device has no gradient of a mask");
  const Gradients made = AttendBackward("aten::_scaled_dot_product_efficient_attention_backward",
                                        grad, q, k, v, out, logsumexp, bias, causal, scale);
  return {made.q, made.k, made.v, {}};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_fused_sdp_choice", TORCH_FN(Choice));
  library.impl("_scaled_dot_product_flash_attention", TORCH_FN(FlashForward));
  library.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(FlashBackward));
  library.impl("_scaled_dot_product_efficient_attention", TORCH_FN(EfficientForward));
  library.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(EfficientBackward));
}

}  // namespace
}  // namespace oxbow::rehearsal

namespace at::native {
REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &oxbow::rehearsal::Choice)
}  // namespace at::native
