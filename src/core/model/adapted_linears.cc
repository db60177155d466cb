// SPDX-License-Identifier: Apache-2.0
#include "core/model/adapted_linears.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "core/model/device.h"
#include "core/model/side_by_side.h"

namespace oxbow::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr size_t kKeptBesideWeights = 3;

bool IsFrozen(const Linear& linear) {
  return !linear.scale.defined() && !linear.weight.is_mkldnn() && !linear.weight.requires_grad() &&
         !(linear.bias.defined() && linear.bias.requires_grad());
}

bool IsAdapted(const Linear& linear) { return linear.lora_a.defined() && IsFrozen(linear); }

bool GoAtOnce(at::ArrayRef<Linear> linears) {
  const auto alike = [&](const Linear& linear) { return AreAlike(linears[0], linear); };
  return std::ranges::all_of(linears, alike) || GoSideBySide(linears);
}

variable_list WeightsOf(at::ArrayRef<Linear> linears) {
  variable_list weights;
  for (const Linear& linear : linears) weights.push_back(linear.weight);
  return weights;
}

// Biases of all layers; none where they have none.
variable_list BiasesOf(at::ArrayRef<Linear> linears) {
  variable_list biases;
  for (const Linear& linear : linears) {
    if (linear.bias.defined()) biases.push_back(linear.bias);
  }
  return biases;
}

// Sizes of layers and of their adapters.
struct Sizes {
  std::vector<int64_t> outs, adapted;  // 1 with an adapter.
  int64_t in = 0, rank = 0;
  double scale = 0;

  int64_t adapters() const { return std::ranges::count(adapted, 1); }
};

Sizes SizesOfLayers(at::ArrayRef<Linear> linears) {
  Sizes sizes{.in = linears[0].weight.size(1)};
  for (const Linear& linear : linears) {
    sizes.outs.push_back(linear.weight.size(0));
    sizes.adapted.push_back(linear.lora_a.defined());
    if (!linear.lora_a.defined()) continue;
    sizes.rank = linear.lora_a.size(0);
    sizes.scale = linear.lora_scale;
  }
  return sizes;
}

// Places of matrices in one tensor: all A [n r, in], then each B [out, r], undefined of a layer
// without an adapter.
struct Matrices {
  Matrices(const at::Tensor& all, const Sizes& s) {
    int64_t from = s.adapters() * s.rank * s.in;
    a = all.narrow(0, 0, from).view({-1, s.in});
    for (size_t i = 0; i < s.outs.size(); ++i) {
      b.push_back(s.adapted[i] == 0 ? at::Tensor() : Stack(all, from, 1, s.outs[i], s.rank)[0]);
      if (s.adapted[i] != 0) from += s.outs[i] * s.rank;
    }
  }
  // [n, rows, columns] from an element on.
  static at::Tensor Stack(const at::Tensor& all, int64_t from, int64_t n, int64_t rows,
                          int64_t columns) {
    return all.narrow(0, from, n * rows * columns).view({n, rows, columns});
  }
  at::Tensor a;
  variable_list b;
};

// Results of layers: columns of one product [rows, sum of outs], or [n, rows, out] of their own.
struct Outputs {
  at::Tensor all;
  bool one = false;

  // [n, rows, out] of layers of one width, of which `from` columns are before.
  at::Tensor Stack(int64_t from, int64_t n, int64_t out) const {
    if (!one) return all;
    return all.narrow(1, from, n * out).unflatten(1, {n, out}).transpose(0, 1);
  }
};

// x W_i^T + b_i.
Outputs MultiplyBases(const at::Tensor& x, at::ArrayRef<Linear> linears) {
  const at::ScalarType type = x.scalar_type();
  if (GoSideBySide(linears)) {
    const variable_list biases = BiasesOf(linears);
    const at::Tensor w = AsOne(WeightsOf(linears)).to(type).t();
    return {biases.empty() ? at::mm(x, w) : at::addmm(AsOne(biases).to(type), x, w), true};
  }
  const auto n = static_cast<int64_t>(linears.size());
  const Outputs y{at::empty({n, x.size(0), linears[0].weight.size(0)}, x.options())};
  for (int64_t i = 0; i < n; ++i) {
    const Linear& linear = linears[static_cast<size_t>(i)];
    const at::Tensor w = linear.weight.to(type).t();
    at::Tensor part = y.all.select(0, i);
    if (linear.bias.defined()) {
      at::addmm_out(part, linear.bias.to(type), x, w);
    } else {
      at::mm_out(part, x, w);
    }
  }
  return y;
}

// Adds scale down_i B_i^T to each: a batch for each row of layers alike.
void AddAdapters(const Outputs& y, const at::Tensor& down, const at::Tensor& matrices,
                 const Sizes& s) {
  int64_t column = 0, adapter = 0, from = s.adapters() * s.rank * s.in;
  for (size_t i = 0; i < s.outs.size();) {
    const int64_t out = s.outs[i];
    size_t end = i + 1;
    if (s.adapted[i] != 0) {
      while (end < s.outs.size() && s.adapted[end] != 0 && s.outs[end] == out) ++end;
      const auto n = static_cast<int64_t>(end - i);
      const at::Tensor part =
          down.narrow(1, adapter * s.rank, n * s.rank).unflatten(1, {n, s.rank}).transpose(0, 1);
      const at::Tensor up = Matrices::Stack(matrices, from, n, out, s.rank).transpose(1, 2);
      y.Stack(column, n, out).baddbmm_(part, up, 1, s.scale);
      adapter += n;
      from += up.numel();
    }
    column += static_cast<int64_t>(end - i) * out;
    i = end;
  }
}

struct Products {
  variable_list y;      // A layer's, [rows, out].
  at::Tensor matrices;  // In the type of products; undefined without adapters.
  at::Tensor down;      // [rows, n r]
};

// x [rows, in] in the type of products, outside autocast.
Products MultiplyAll(const at::Tensor& x, at::ArrayRef<Linear> linears, const at::Tensor& rounded) {
  const Sizes s = SizesOfLayers(linears);
  const Outputs y = MultiplyBases(x, linears);
  Products made{.matrices = rounded};
  if (s.rank > 0) {
    if (!rounded.defined() || rounded.scalar_type() != x.scalar_type()) {
      made.matrices = at::cat(FlatMatrices(linears)).to(x.scalar_type());
    }
    made.down = at::mm(x, Matrices(made.matrices, s).a.t());
    AddAdapters(y, made.down, made.matrices, s);
  }
  made.y = y.one ? y.all.split_with_sizes(s.outs, 1) : y.all.unbind(0);
  return made;
}

// The layers, which are no arguments of autograd's.
struct Layers {
  std::vector<Linear> linears;
  at::Tensor matrices;
};

struct FrozenFunction : torch::autograd::Function<FrozenFunction> {
  // `sources`: each A, then each B. Weights and biases want no gradients.
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList /*sources*/, const Layers& layers) {
    const Products made = MultiplyAll(x, layers.linears, layers.matrices);
    variable_list kept = {x, made.matrices, made.down}, parts;
    for (size_t i = 0; i < layers.linears.size(); ++i) {
      kept.push_back(layers.linears[i].weight);
      // A view of y would follow what becomes of y.
      parts.push_back(made.y[i].variable_data());
    }
    context->save_for_backward(std::move(kept));
    const Sizes s = SizesOfLayers(layers.linears);
    context->saved_data["adapted"] = s.adapted;
    context->saved_data["rank"] = s.rank;
    context->saved_data["scale"] = s.scale;
    return parts;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::ArrayRef<at::Tensor> weights = at::ArrayRef(saved).slice(kKeptBesideWeights);
    Sizes s{.adapted = context->saved_data["adapted"].toIntVector(),
            .in = weights[0].size(1),
            .rank = context->saved_data["rank"].toInt(),
            .scale = context->saved_data["scale"].toDouble()};
    for (const at::Tensor& weight : weights) s.outs.push_back(weight.size(0));
    at::Tensor dx;
    for (size_t i = 0; i < weights.size() && context->needs_input_grad(0); ++i) {
      const at::Tensor weight = weights[i].to(x.scalar_type());
      dx = dx.defined() ? dx.addmm_(gradients[i], weight) : at::mm(gradients[i], weight);
    }
    variable_list results = AdapterGradients(saved, gradients, s, dx);
    results.insert(results.begin(), dx);
    results.emplace_back();
    return results;
  }

  // Gradients of each A, then of each B. Adds to dx what comes through them, unless it is
  // undefined.
  static variable_list AdapterGradients(const variable_list& saved, const variable_list& gradients,
                                        const Sizes& s, at::Tensor& dx) {
    if (s.rank == 0) return {};
    const at::Tensor &x = saved[0], &down = saved[2];
    const Matrices of(saved[1], s);
    at::Tensor ddown = at::empty_like(down);
    at::Tensor slopes = at::empty_like(saved[1]);  // The matrices have them.
    Matrices d(slopes, s);
    int64_t column = 0;
    for (size_t i = 0; i < s.outs.size(); ++i) {
      if (s.adapted[i] == 0) continue;
      at::Tensor part = ddown.narrow(1, column, s.rank);
      at::mm_out(part, gradients[i], of.b[i]);
      at::mm_out(d.b[i], gradients[i].t(), down.narrow(1, column, s.rank));
      column += s.rank;
    }
    if (dx.defined()) dx.addmm_(ddown, of.a, 1, s.scale);
    at::mm_out(d.a, ddown.t(), x);
    at::Tensor exact = at::empty(slopes.sizes(), slopes.options().dtype(at::kFloat));
    at::mul_out(exact, slopes, at::scalar_tensor(s.scale));
    const Matrices found(exact, s);
    variable_list results;
    for (const at::Tensor& a : found.a.split(s.rank)) results.push_back(a);
    for (const at::Tensor& b : found.b) {
      if (b.defined()) results.push_back(b);
    }
    return results;
  }
};

}  // namespace

bool GoSideBySide(at::ArrayRef<Linear> linears) {
  if (!std::ranges::all_of(linears, IsFrozen) || !LieSideBySide(WeightsOf(linears))) return false;
  const variable_list biases = BiasesOf(linears);
  if (!biases.empty() && (biases.size() < linears.size() || !LieSideBySide(biases))) return false;
  const Sizes s = SizesOfLayers(linears);
  return std::ranges::all_of(linears, [&](const Linear& linear) {
    return !linear.lora_a.defined() ||
           (linear.lora_a.size(0) == s.rank && linear.lora_scale == s.scale);
  });
}

bool AreAlike(const Linear& a, const Linear& b) {
  return IsAdapted(a) && IsAdapted(b) && a.weight.sizes() == b.weight.sizes() &&
         a.lora_a.sizes() == b.lora_a.sizes() && a.lora_scale == b.lora_scale;
}

std::vector<at::Tensor> FlatMatrices(at::ArrayRef<Linear> linears) {
  std::vector<at::Tensor> matrices;
  if (!GoAtOnce(linears)) return matrices;
  for (const Linear& linear : linears) {
    if (linear.lora_a.defined()) matrices.push_back(linear.lora_a.reshape(-1));
  }
  for (const Linear& linear : linears) {
    if (linear.lora_a.defined()) matrices.push_back(linear.lora_b.reshape(-1));
  }
  return matrices;
}

std::vector<at::Tensor> ApplyFrozen(const at::Tensor& x, at::ArrayRef<Linear> linears,
                                    const at::Tensor& matrices) {
  if (!x.is_cuda() || !GoAtOnce(linears)) return {};
  const bool exact = c10::impl::tls_is_dispatch_keyset_excluded(c10::autocast_dispatch_keyset);
  const at::Tensor rows = (exact ? x : AsOperand(x)).reshape({-1, x.size(-1)});
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::autocast_dispatch_keyset);
  variable_list sources;
  for (const Linear& linear : linears) {
    if (linear.lora_a.defined()) sources.push_back(linear.lora_a);
  }
  for (const Linear& linear : linears) {
    if (linear.lora_a.defined()) sources.push_back(linear.lora_b);
  }
  const bool trains = at::GradMode::is_enabled() &&
                      (rows.requires_grad() || std::ranges::any_of(sources, [](const auto& of) {
                         return of.requires_grad();
                       }));
  std::vector<at::Tensor> parts =
      trains ? FrozenFunction::apply(rows, at::TensorList(sources), Layers{linears.vec(), matrices})
             : MultiplyAll(rows, linears, matrices).y;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = linears[i].weight.size(0);
    parts[i] = parts[i].view(sizes);
  }
  return parts;
}

}  // namespace oxbow::model
