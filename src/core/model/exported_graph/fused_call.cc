// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/fused_call.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/model/device.h"
#include "core/model/fused/fused_layers.h"
#include "core/model/fused/head_layers.h"
#include "core/model/fused/modulation.h"

namespace oxbow::model::exported {
namespace {

using Results = std::vector<at::Tensor>;

constexpr double kShortBound = 1.0 / (1 << 6);
constexpr double kExactBound = 1.0 / (1 << 16);

Results AsResults(std::optional<at::Tensor> result) {
  return result ? Results{*std::move(result)} : Results();
}

// [B, D] of a condition per sample that broadcasts to x [B, T, D]; else undefined.
at::Tensor OfSamples(const at::Tensor& condition, const at::Tensor& x) {
  const bool fits = condition.defined() && x.dim() == 3 && condition.dim() == 3 &&
                    condition.size(0) == x.size(0) && condition.size(1) == 1;
  return fits ? condition.squeeze(1) : at::Tensor();
}

// Factors and shifts that broadcast to x.
std::vector<fused::TokenModulation> ModulationsOf(const Fusion& fusion, const TensorAt& at) {
  const at::Tensor weight = at(fusion.weight);
  std::vector<fused::TokenModulation> all;
  for (const NormSlots& pair : fusion.by) {
    fused::TokenModulation by{.scale = at(pair.scale),
                              .shift = at(pair.shift),
                              .base = fusion.base,
                              .centred = !fusion.rms};
    if (pair.of_samples) by.scale = by.scale.unsqueeze(1);
    if (weight.defined()) {
      by.scale = by.scale.defined() ? weight * (by.scale + by.base) : weight;
      by.base = 0;
    }
    all.push_back(std::move(by));
  }
  return all;
}

Results NormBy(const Fusion& fusion, const TensorAt& at) {
  const at::Tensor x = at(fusion.x);
  const std::vector<fused::TokenModulation> all = ModulationsOf(fusion, at);
  if (!x.is_cpu()) {
    return fused::NormTokens(x, all, fusion.eps, fusion.operand ? OperandType(x) : at::kFloat);
  }
  Results results;
  for (const fused::TokenModulation& by : all) {
    const at::Tensor scale = OfSamples(by.scale, x), shift = OfSamples(by.shift, x);
    if (!by.centred || by.base != 1 || !scale.defined() || !shift.defined()) return {};
    const auto result = fused::NormModulateOnCpu(x, scale, shift, fusion.eps);
    if (!result) return {};
    results.push_back(*result);
  }
  return results;
}

Results GateBy(const Fusion& fusion, const TensorAt& at) {
  const at::Tensor x = at(fusion.x);
  at::Tensor gate = at(fusion.a), y = at(fusion.b);
  if (y.sizes() != x.sizes()) std::swap(gate, y);
  if (x.is_cpu()) {
    const at::Tensor of_samples = OfSamples(gate, x);
    return of_samples.defined() ? AsResults(fused::AddGatedOnCpu(x, of_samples, y)) : Results();
  }
  const at::ScalarType type =
      at::promote_types(x.scalar_type(), at::promote_types(gate.scalar_type(), y.scalar_type()));
  return AsResults(fused::GateTokens(x, gate, y, fusion.exact ? at::kFloat : type));
}

// cat([x, gelu(a)]): the GELU writes its part.
struct JoinGeluFunction : torch::autograd::Function<JoinGeluFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& a, const std::string& approximate) {
    context->save_for_backward({a});
    context->saved_data["approximate"] = approximate;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() += a.size(-1);
    const at::Tensor joint = at::empty(sizes, x.options());
    joint.narrow(-1, 0, x.size(-1)).copy_(x);
    at::Tensor rest = joint.narrow(-1, x.size(-1), a.size(-1));
    at::gelu_out(rest, a, approximate);
    return joint;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor a = context->get_saved_variables()[0];
    const int64_t width = gradients[0].size(-1) - a.size(-1);
    return {gradients[0].narrow(-1, 0, width),
            at::gelu_backward(gradients[0].narrow(-1, width, a.size(-1)), a,
                              context->saved_data["approximate"].toStringRef()),
            {}};
  }
};

Results JoinBy(const Fusion& fusion, const TensorAt& at) {
  const at::Tensor x = at(fusion.x), a = at(fusion.a);
  if (x.scalar_type() != a.scalar_type() || x.dim() != a.dim() || x.dim() == 0 ||
      x.sizes().slice(0, x.dim() - 1) != a.sizes().slice(0, a.dim() - 1)) {
    return {};
  }
  return {JoinGeluFunction::apply(x, a, std::string(fusion.tanh ? "tanh" : "none"))};
}

// The product's epilogue, which rounds once. It has no derivative.
Results GeluBy(const Fusion& fusion, const TensorAt& at) {
  const at::Tensor x = at(fusion.x), weight = at(fusion.weight), bias = at(fusion.a);
  const at::ScalarType type = OperandType(x);
  if (at::GradMode::is_enabled() || !at::isReducedFloatingType(type) ||
      weight.scalar_type() != type) {
    return {};
  }
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
  const at::Tensor rows = x.to(type).reshape({-1, x.size(-1)});
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return {
      at::_addmm_activation(bias.to(type), rows, weight.t(), 1, 1, /*use_gelu=*/true).view(sizes)};
}

// Angles that broadcast to [B, T, heads, d]: tokens [from, from + count) of a joint table's.
at::Tensor AnglesOf(at::Tensor table, bool rows, bool joint, int64_t from, int64_t count) {
  if (!table.defined()) return table;
  if (rows) table = table.unsqueeze(-2);
  if (!joint || table.dim() < 3 || table.size(-3) < from + count) return table;
  return table.narrow(-3, from, count);
}

Results HeadsBy(const Fusion& fusion, const TensorAt& at) {
  std::vector<fused::HeadPart> parts;
  bool rows = false;
  int64_t from = 0;
  for (const HeadSlots& of : fusion.parts) {
    at::Tensor x = at(of.x);
    if (x.dim() != 3 && x.dim() != 4) return {};
    if (x.dim() == 3) {
      rows = of.split.empty();
      x = rows ? x.unsqueeze(2) : x.unflatten(2, of.split);
    }
    const int64_t tokens = x.size(1);
    parts.push_back({.x = x,
                     .norm = of.norm,
                     .whole = of.whole,
                     .eps = of.eps,
                     .weight = at(of.weight),
                     .cos = AnglesOf(at(of.cos), rows, of.joint, from, tokens),
                     .sin = AnglesOf(at(of.sin), rows, of.joint, from, tokens)});
    from += tokens;
  }
  auto joined = fused::JoinHeads(parts, OperandType(parts[0].x));
  if (joined && rows) *joined = joined->squeeze(2);
  if (joined && fusion.transposed) *joined = joined->transpose(1, 2);
  return AsResults(std::move(joined));
}

}  // namespace

std::vector<at::Tensor> RunFused(const Fusion& fusion, const TensorAt& at) {
  const at::Tensor x = at(fusion.x);
  const bool here = x.is_cpu() && OperandType(x) == at::kFloat;
  if (!here && !(x.is_cuda() && fused::HasKernels())) return {};
  switch (fusion.kind) {
    case FusionKind::kNorm:
      return NormBy(fusion, at);
    case FusionKind::kGate:
      return GateBy(fusion, at);
    case FusionKind::kJoin:
      return here ? Results() : JoinBy(fusion, at);
    case FusionKind::kHeads:
      return here ? Results() : HeadsBy(fusion, at);
    case FusionKind::kGelu:
      return here ? Results() : GeluBy(fusion, at);
  }
  return {};
}

std::vector<int64_t> SignatureOf(const Fusion& fusion, const TensorAt& at) {
  std::vector<int64_t> signature = {static_cast<int64_t>(OperandType(at(fusion.x)))};
  for (const Slot slot : InputsOf(fusion)) {
    const at::Tensor value = at(slot);
    signature.push_back(static_cast<int64_t>(value.scalar_type()));
    signature.push_back(value.dim());
    for (int64_t d = 1; d < value.dim(); ++d) signature.push_back(value.size(d));
  }
  return signature;
}

at::ScalarType ShortestTypeOf(const Fusion& fusion, const TensorAt& at) {
  for (const Slot slot : InputsOf(fusion)) {
    const at::ScalarType type = at(slot).scalar_type();
    if (at::isReducedFloatingType(type)) return type;
  }
  return at(fusion.x).scalar_type();
}

bool Agree(const at::Tensor& fused, const at::Tensor& plain, at::ScalarType shortest,
           bool operand) {
  if (fused.sizes() != plain.sizes()) return false;
  if (!operand && fused.scalar_type() != plain.scalar_type()) return false;
  const bool exact =
      !at::isReducedFloatingType(shortest) && !at::isReducedFloatingType(fused.scalar_type());
  const at::NoGradGuard no_gradients;
  const at::Tensor wanted = plain.to(at::kFloat);
  constexpr double kLargest = std::numeric_limits<double>::infinity();
  const at::Tensor apart = at::linalg_vector_norm(fused.to(at::kFloat) - wanted, kLargest);
  const at::Tensor bound =
      at::linalg_vector_norm(wanted, kLargest) * (exact ? kExactBound : kShortBound);
  return apart.le(bound).item<bool>();  // NaN is not near.
}

bool FusionVerdicts::Fits(size_t fusion, const std::vector<int64_t>& signature,
                          const std::function<bool()>& judge) {
  const std::lock_guard lock(mutex_);
  const std::pair key(fusion, signature);
  const auto found = verdicts_.find(key);
  if (found != verdicts_.end()) return found->second;
  return verdicts_.emplace(key, judge()).first->second;  // One that throws is judged again.
}

size_t FusionVerdicts::CountForTest(bool fits) const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::ranges::count_if(
      verdicts_, [&](const auto& verdict) { return verdict.second == fits; }));
}

}  // namespace oxbow::model::exported
