// SPDX-License-Identifier: Apache-2.0
#include "core/model/adapted_linears.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "core/model/device.h"

namespace oxbow::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr size_t kKeptBesideWeights = 3;

// Sizes of n layers alike.
struct Shape {
  int64_t n = 0, rank = 0, in = 0, out = 0;
};

Shape ShapeOf(at::ArrayRef<Linear> linears) {
  const Linear& one = linears[0];
  return {static_cast<int64_t>(linears.size()), one.lora_a.size(0), one.weight.size(1),
          one.weight.size(0)};
}

// All A [n r, in] and B [n, out, r] of one tensor that has the elements of each A, then each B.
struct Matrices {
  Matrices(const at::Tensor& all, const Shape& s)
      : a(all.narrow(0, 0, s.n * s.rank * s.in).view({s.n * s.rank, s.in})),
        b(all.narrow(0, a.numel(), s.n * s.out * s.rank).view({s.n, s.out, s.rank})) {}
  at::Tensor a, b;
};

struct Products {
  at::Tensor y;     // [n, rows, out]
  at::Tensor all;   // Matrices, in the type of products.
  at::Tensor down;  // [rows, n r]
};

// x [rows, in] in the type of products, outside autocast.
Products MultiplyAll(const at::Tensor& x, at::ArrayRef<Linear> linears) {
  const Shape s = ShapeOf(linears);
  const at::ScalarType type = x.scalar_type();
  variable_list matrices;
  for (const Linear& linear : linears) matrices.push_back(linear.lora_a.reshape(-1));
  for (const Linear& linear : linears) matrices.push_back(linear.lora_b.reshape(-1));
  Products made{.y = at::empty({s.n, x.size(0), s.out}, x.options()),
                .all = at::cat(matrices).to(type)};
  for (int64_t i = 0; i < s.n; ++i) {
    const Linear& linear = linears[static_cast<size_t>(i)];
    const at::Tensor weight = linear.weight.to(type).t();
    at::Tensor part = made.y.select(0, i);
    if (linear.bias.defined()) {
      at::addmm_out(part, linear.bias.to(type), x, weight);
    } else {
      at::mm_out(part, x, weight);
    }
  }
  const Matrices of(made.all, s);
  made.down = at::mm(x, of.a.t());
  made.y.baddbmm_(made.down.view({-1, s.n, s.rank}).transpose(0, 1), of.b.transpose(1, 2), 1,
                  linears[0].lora_scale);
  return made;
}

// The layers, which are no arguments of autograd's.
struct Layers {
  std::vector<Linear> linears;
};

struct AdaptedFunction : torch::autograd::Function<AdaptedFunction> {
  // `matrices`: each A, then each B. Weights and biases want no gradients.
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList /*matrices*/, const Layers& layers) {
    const Products made = MultiplyAll(x, layers.linears);
    variable_list kept = {x, made.all, made.down};
    variable_list parts;
    for (size_t i = 0; i < layers.linears.size(); ++i) {
      kept.push_back(layers.linears[i].weight);
      // A view of y would follow what becomes of y.
      parts.push_back(made.y.select(0, static_cast<int64_t>(i)).variable_data());
    }
    context->save_for_backward(std::move(kept));
    context->saved_data["rank"] = layers.linears[0].lora_a.size(0);
    context->saved_data["scale"] = layers.linears[0].lora_scale;
    return parts;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &down = saved[2];
    const at::ArrayRef<at::Tensor> weights = at::ArrayRef(saved).slice(kKeptBesideWeights);
    const Shape s = {static_cast<int64_t>(weights.size()), context->saved_data["rank"].toInt(),
                     weights[0].size(1), weights[0].size(0)};
    const double scale = context->saved_data["scale"].toDouble();
    const Matrices of(saved[1], s);
    at::Tensor dx;
    at::Tensor ddown = at::empty_like(down);
    at::Tensor slopes = at::empty_like(saved[1]);  // The matrices have them.
    Matrices d(slopes, s);
    for (int64_t i = 0; i < s.n; ++i) {
      const at::Tensor& dy = gradients[static_cast<size_t>(i)];
      at::Tensor part = ddown.narrow(1, i * s.rank, s.rank), db = d.b.select(0, i);
      at::mm_out(part, dy, of.b.select(0, i));
      at::mm_out(db, dy.t(), down.narrow(1, i * s.rank, s.rank));
      if (!context->needs_input_grad(0)) continue;
      const at::Tensor weight = weights[static_cast<size_t>(i)].to(x.scalar_type());
      dx = dx.defined() ? dx.addmm_(dy, weight) : at::mm(dy, weight);
    }
    if (dx.defined()) dx.addmm_(ddown, of.a, 1, scale);
    at::mm_out(d.a, ddown.t(), x);
    at::Tensor exact = at::empty(slopes.sizes(), slopes.options().dtype(at::kFloat));
    at::mul_out(exact, slopes, at::scalar_tensor(scale));
    const Matrices found(exact, s);
    variable_list results = {dx};
    for (int64_t i = 0; i < s.n; ++i) results.push_back(found.a.narrow(0, i * s.rank, s.rank));
    for (int64_t i = 0; i < s.n; ++i) results.push_back(found.b.select(0, i));
    results.emplace_back();
    return results;
  }
};

bool IsAdapted(const Linear& linear) {
  return linear.lora_a.defined() && !linear.scale.defined() && !linear.weight.is_mkldnn() &&
         !linear.weight.requires_grad() && !(linear.bias.defined() && linear.bias.requires_grad());
}

}  // namespace

bool AreAlike(const Linear& a, const Linear& b) {
  return IsAdapted(a) && IsAdapted(b) && a.weight.sizes() == b.weight.sizes() &&
         a.lora_a.sizes() == b.lora_a.sizes() && a.lora_scale == b.lora_scale;
}

std::vector<at::Tensor> ApplyAdapted(const at::Tensor& x, at::ArrayRef<Linear> linears) {
  const bool alike = std::ranges::all_of(
      linears, [&](const Linear& linear) { return AreAlike(linears[0], linear); });
  if (!x.is_cuda() || !alike) return {};
  const bool exact = c10::impl::tls_is_dispatch_keyset_excluded(c10::autocast_dispatch_keyset);
  const at::Tensor rows = (exact ? x : AsOperand(x)).reshape({-1, x.size(-1)});
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
  variable_list matrices;
  for (const Linear& linear : linears) matrices.push_back(linear.lora_a);
  for (const Linear& linear : linears) matrices.push_back(linear.lora_b);
  const bool trains = at::GradMode::is_enabled() &&
                      (rows.requires_grad() || std::ranges::any_of(matrices, [](const auto& of) {
                         return of.requires_grad();
                       }));
  std::vector<at::Tensor> parts =
      trains ? AdaptedFunction::apply(rows, at::TensorList(matrices), Layers{linears.vec()})
             : MultiplyAll(rows, linears).y.unbind(0);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = linears[0].weight.size(0);
  for (at::Tensor& part : parts) part = part.view(sizes);
  return parts;
}

}  // namespace oxbow::model
