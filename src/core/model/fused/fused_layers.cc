// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/fused_layers.h"

// Set by the build where CUDA's compiler is.
#if OXBOW_HAS_FUSED_KERNELS
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/model/fused/kernel_launch.h"
#endif

namespace oxbow::model::fused {

bool HasKernels() { return OXBOW_HAS_FUSED_KERNELS; }

#if OXBOW_HAS_FUSED_KERNELS
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool FitsTokens(const at::Tensor& x) {
  return KernelFits(x) && x.dim() == 3 && x.numel() > 0 && TakesTokens(x.size(2));
}

// The rows of x and how they share those of a condition; nullopt if no kernel reads it so.
std::optional<Rows> RowsUnder(const at::Tensor& condition, const at::Tensor& x) {
  Rows rows{x.size(0) * x.size(1), x.size(2), x.size(0) * x.size(1), 0};
  if (!condition.defined()) return rows;
  if (!KernelFits(condition) || condition.dim() == 0 || condition.size(-1) != x.size(2) ||
      condition.stride(-1) != 1 || !at::is_expandable_to(condition.sizes(), x.sizes())) {
    return std::nullopt;
  }
  const at::Tensor all = condition.expand(x.sizes());
  const int64_t of_sample = x.size(0) == 1 ? 0 : all.stride(0), of_token = all.stride(1);
  if (of_token == 0 || x.size(1) == 1) {
    rows.stride = of_sample;
    rows.per_sample = x.size(1);
  } else if (x.size(0) == 1 || of_sample == of_token * x.size(1)) {
    rows.stride = of_token;
    rows.per_sample = 1;
  } else {
    return std::nullopt;
  }
  return rows.stride % 8 == 0 ? std::optional(rows) : std::nullopt;
}

// One or two pairs of conditions, as a kernel takes them: scale and shift of each.
struct Conditions {
  variable_list scales, shifts;
  double base = 1;
  bool centred = true;

  Modulations Of() const {
    Modulations by{.two = scales.size() > 1, .base = static_cast<float>(base), .centred = centred};
    by.first = {ValuesOf(scales[0]), ValuesOf(shifts[0])};
    if (by.two) by.second = {ValuesOf(scales[1]), ValuesOf(shifts[1])};
    if (!scales[0].defined()) by.first.scale.type = by.first.shift.type;
    return by;
  }
};

struct NormTokensFunction : torch::autograd::Function<NormTokensFunction> {
  // Conditions want no gradients.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const Conditions& by,
                               const Rows& rows, double eps, at::ScalarType out) {
    variable_list kept = {x};
    kept.insert(kept.end(), by.scales.begin(), by.scales.end());
    context->save_for_backward(std::move(kept));
    context->saved_data["base"] = by.base;
    context->saved_data["centred"] = by.centred;
    context->saved_data["eps"] = eps;
    context->saved_data["per_sample"] = rows.per_sample;
    context->saved_data["stride"] = rows.stride;
    variable_list y;
    for (size_t i = 0; i < by.scales.size(); ++i) {
      y.push_back(at::empty(x.sizes(), x.options().dtype(out)));
    }
    const Launch launch(x);
    fused::NormModulate(ValuesOf(x), by.Of(), ResultsOf(y.front()), ResultsOf(y.back()), rows,
                        static_cast<float>(eps), launch.stream);
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    auto& data = context->saved_data;
    const Conditions by{.scales = {saved.begin() + 1, saved.end()},
                        .shifts = variable_list(saved.size() - 1),
                        .base = data["base"].toDouble(),
                        .centred = data["centred"].toBool()};
    variable_list dy;
    for (const at::Tensor& gradient : gradients) dy.push_back(gradient.contiguous());
    at::Tensor dx = at::empty_like(x);
    const Rows rows = {x.size(0) * x.size(1), x.size(2), data["per_sample"].toInt(),
                       data["stride"].toInt()};
    const Launch launch(dx);
    NormModulateGradient(ValuesOf(x), by.Of(), ValuesOf(dy.front()), ValuesOf(dy.back()),
                         ResultsOf(dx), rows, static_cast<float>(data["eps"].toDouble()),
                         launch.stream);
    return {dx, {}, {}, {}, {}};
  }
};

struct GateTokensFunction : torch::autograd::Function<GateTokensFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& y, const Rows& rows, at::ScalarType out) {
    context->save_for_backward({gate});
    context->saved_data["of_x"] = x.scalar_type();
    context->saved_data["of_y"] = y.scalar_type();
    context->saved_data["per_sample"] = rows.per_sample;
    context->saved_data["stride"] = rows.stride;
    at::Tensor sum = at::empty(x.sizes(), x.options().dtype(out));
    const Launch launch(x);
    fused::AddGated(ValuesOf(x), ValuesOf(gate), ValuesOf(y), ResultsOf(sum), rows, launch.stream);
    return sum;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor gate = context->get_saved_variables()[0];
    auto& data = context->saved_data;
    const at::Tensor dsum = gradients[0].contiguous();
    at::Tensor dx, dy;
    if (context->needs_input_grad(0)) dx = gradients[0].to(data["of_x"].toScalarType());
    if (context->needs_input_grad(2)) {
      dy = at::empty(dsum.sizes(), dsum.options().dtype(data["of_y"].toScalarType()));
      const Rows rows = {dsum.size(0) * dsum.size(1), dsum.size(2), data["per_sample"].toInt(),
                         data["stride"].toInt()};
      const Launch launch(dy);
      AddGatedGradient(ValuesOf(gate), ValuesOf(dsum), ResultsOf(dy), rows, launch.stream);
    }
    return {dx, {}, dy, {}, {}};
  }
};

}  // namespace

variable_list NormTokens(const at::Tensor& tokens, const std::vector<TokenModulation>& by,
                         double eps, at::ScalarType out) {
  const at::Tensor x = tokens.contiguous();
  if (!FitsTokens(x) || !IsElement(out) || by.empty() || by.size() > 2) return {};
  std::optional<Rows> rows;
  std::optional<at::ScalarType> type;
  Conditions conditions{.base = by[0].base, .centred = by[0].centred};
  for (const TokenModulation& pair : by) {
    // One of two pairs has what the other has.
    if (pair.scale.defined() != by[0].scale.defined()) return {};
    for (const at::Tensor& condition : {pair.scale, pair.shift}) {
      if (!condition.defined()) continue;
      const std::optional<Rows> under = RowsUnder(condition, x);
      if (!under.has_value() || Trains(condition)) return {};
      if (rows && (rows->stride != under->stride || rows->per_sample != under->per_sample)) {
        return {};
      }
      if (type.value_or(condition.scalar_type()) != condition.scalar_type()) return {};
      rows = under;
      type = condition.scalar_type();
    }
    conditions.scales.push_back(pair.scale);
    conditions.shifts.push_back(pair.shift);
  }
  if (!rows) rows = RowsUnder({}, x);
  return NormTokensFunction::apply(x, conditions, *rows, eps, out);
}

// Where residuals are not side by side at first, they are from here on.
std::optional<at::Tensor> GateTokens(const at::Tensor& residuals, const at::Tensor& gate,
                                     const at::Tensor& summand, at::ScalarType out) {
  const at::Tensor x = residuals.contiguous(), y = summand.contiguous();
  if (!FitsTokens(x) || !KernelFits(y) || y.sizes() != x.sizes() || !IsElement(out) ||
      Trains(gate)) {
    return std::nullopt;
  }
  const std::optional<Rows> rows = RowsUnder(gate, x);
  if (!rows || !gate.defined()) return std::nullopt;
  return GateTokensFunction::apply(x, gate, y, *rows, out);
}

#else

std::vector<at::Tensor> NormTokens(const at::Tensor&, const std::vector<TokenModulation>&, double,
                                   at::ScalarType) {
  return {};
}
std::optional<at::Tensor> GateTokens(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     at::ScalarType) {
  return std::nullopt;
}

#endif

}  // namespace oxbow::model::fused
