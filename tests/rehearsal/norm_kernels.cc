// SPDX-License-Identifier: Apache-2.0
// Layer norm and the fused RMS norm: their shapes are known without a meta kernel, and CPU LibTorch
// does not have the second.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/launch.h"

namespace oxbow::rehearsal {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// A kernel's optional argument.
struct Argument {
  explicit Argument(const std::optional<at::Tensor>& tensor) {
    if (tensor && tensor->defined()) view.emplace(*tensor);
  }
  std::optional<at::Tensor> Tensor() const {
    return view ? std::optional(view->Tensor()) : std::nullopt;
  }
  std::optional<KernelView> view;
};

// One value for each row of `x` that is normalised over its last `count` dimensions.
at::Tensor PerRow(const at::Tensor& x, size_t count) {
  std::vector<int64_t> rows = x.sizes().vec();
  for (size_t i = 0; i < count; ++i) rows[rows.size() - 1 - i] = 1;
  return Empty(rows, at::kFloat, x.device());
}

// Mean and 1 / deviation are float32, as CUDA's are, whatever the type of x.
Three LayerNorm(const at::Tensor& input, at::IntArrayRef normalized,
                const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                double eps) {
  const at::Tensor x = input.contiguous();
  const at::Tensor y = Empty(x.sizes(), x.scalar_type(), x.device());
  const at::Tensor mean = PerRow(x, normalized.size()), rstd = PerRow(x, normalized.size());
  Launch launch{.name = "aten::native_layer_norm", .reads = {x}, .writes = {y, mean, rstd}};
  for (const auto* given : {&weight, &bias}) {
    if (!*given || !(*given)->defined()) continue;
    launch.reads.push_back(**given);
  }
  RunOnOneDevice(launch, [x = KernelView(x), y = KernelView(y), mean = KernelView(mean),
                          rstd = KernelView(rstd), weight = Argument(weight), bias = Argument(bias),
                          normalized = normalized.vec(), eps] {
    const auto [out, m, r] =
        at::native_layer_norm(x.Tensor(), normalized, weight.Tensor(), bias.Tensor(), eps);
    y.Tensor().copy_(out);
    mean.Tensor().copy_(m);
    rstd.Tensor().copy_(r);
  });
  return {y, mean, rstd};
}

Three LayerNormBackward(const at::Tensor& slope, const at::Tensor& input,
                        at::IntArrayRef normalized, const at::Tensor& mean, const at::Tensor& rstd,
                        const std::optional<at::Tensor>& weight,
                        const std::optional<at::Tensor>& bias, std::array<bool, 3> wanted) {
  const at::Tensor dy = slope.contiguous(), x = input.contiguous();
  std::array<at::Tensor, 3> made;
  if (wanted[0]) made[0] = Empty(x.sizes(), x.scalar_type(), x.device());
  if (wanted[1]) made[1] = EmptyLike(*weight, x.device());
  if (wanted[2]) made[2] = EmptyLike(*bias, x.device());
  Launch launch{
      .name = "aten::native_layer_norm_backward", .reads = {dy, x, mean, rstd}, .writes = {}};
  std::array<std::optional<KernelView>, 3> views;
  for (size_t i = 0; i < made.size(); ++i) {
    if (!wanted[i]) continue;
    launch.writes.push_back(made[i]);
    views[i].emplace(made[i]);
  }
  RunOnOneDevice(launch, [dy = KernelView(dy), x = KernelView(x), mean = KernelView(mean),
                          rstd = KernelView(rstd), weight = Argument(weight), bias = Argument(bias),
                          views, normalized = normalized.vec(), wanted] {
    const at::Tensor values = x.Tensor();  // CPU's kernel wants means of the values' type.
    const auto [dx, dw, db] = at::native_layer_norm_backward(
        dy.Tensor(), values, normalized, mean.Tensor().to(values.scalar_type()),
        rstd.Tensor().to(values.scalar_type()), weight.Tensor(), bias.Tensor(), wanted);
    const std::array<at::Tensor, 3> results = {dx, dw, db};
    for (size_t i = 0; i < views.size(); ++i) {
      if (views[i]) views[i]->Tensor().copy_(results[i]);
    }
  });
  return {made[0], made[1], made[2]};
}

struct Norm {
  at::Tensor normal, rstd;  // x / rms(x) in float32; 1 / rms(x).
};

Norm Normal(const at::Tensor& x, at::IntArrayRef normalized, double eps) {
  std::vector<int64_t> dims;
  const auto last = static_cast<int64_t>(normalized.size());
  for (int64_t i = 0; i < last; ++i) dims.push_back(x.dim() - 1 - i);
  const at::Tensor exact = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(exact.square().mean(dims, /*keepdim=*/true) + eps);
  return {exact * rstd, rstd};
}

// y = x / rms(x) * weight, and 1 / rms(x) in float32.
std::tuple<at::Tensor, at::Tensor> RmsNorm(const at::Tensor& x, at::IntArrayRef normalized,
                                           const std::optional<at::Tensor>& weight,
                                           std::optional<double> eps) {
  TORCH_CHECK(weight && eps, "the rehearsal device's RMS norm has a weight and an epsilon");
  const at::Tensor y = Empty(x.sizes(), x.scalar_type(), x.device());
  const at::Tensor rstd = PerRow(x, normalized.size());
  RunOnOneDevice({.name = "aten::_fused_rms_norm", .reads = {x, *weight}, .writes = {y, rstd}},
                 [x = KernelView(x), weight = KernelView(*weight), y = KernelView(y),
                  rstd = KernelView(rstd), normalized = normalized.vec(), eps] {
                   const Norm norm = Normal(x.Tensor(), normalized, *eps);
                   y.Tensor().copy_(norm.normal * weight.Tensor());
                   rstd.Tensor().copy_(norm.rstd);
                 });
  return {y, rstd};
}

// With n = x rstd and g = dy weight: dx = rstd (g - n mean(g n)), dweight = sum(dy n).
std::tuple<at::Tensor, at::Tensor> RmsNormBackward(const at::Tensor& dy, const at::Tensor& x,
                                                   at::IntArrayRef normalized,
                                                   const at::Tensor& rstd,
                                                   const std::optional<at::Tensor>& weight,
                                                   std::array<bool, 2> wanted) {
  const at::Tensor dx = EmptyLike(x, x.device());
  const at::Tensor dweight = wanted[1] ? EmptyLike(*weight, x.device()) : at::Tensor();
  Launch launch{
      .name = "aten::_fused_rms_norm_backward", .reads = {dy, x, rstd, *weight}, .writes = {dx}};
  std::optional<KernelView> weight_out;
  if (wanted[1]) {
    launch.writes.push_back(dweight);
    weight_out.emplace(dweight);
  }
  RunOnOneDevice(launch, [dy = KernelView(dy), x = KernelView(x), rstd = KernelView(rstd),
                          weight = KernelView(*weight), dx = KernelView(dx), weight_out,
                          count = static_cast<int64_t>(normalized.size())] {
    std::vector<int64_t> inner, outer;
    const at::Tensor slope = dy.Tensor().to(at::kFloat), scale = rstd.Tensor();
    const at::Tensor normal = x.Tensor().to(at::kFloat) * scale;
    for (int64_t i = 0; i < slope.dim(); ++i) {
      (i < slope.dim() - count ? outer : inner).push_back(i);
    }
    const at::Tensor g = slope * weight.Tensor();
    dx.Tensor().copy_(scale * (g - normal * (g * normal).mean(inner, /*keepdim=*/true)));
    if (weight_out) {
      const at::Tensor each = slope * normal;
      weight_out->Tensor().copy_(outer.empty() ? each : each.sum(outer));
    }
  });
  return {dx, dweight};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("native_layer_norm", TORCH_FN(LayerNorm));
  library.impl("native_layer_norm_backward", TORCH_FN(LayerNormBackward));
  library.impl("_fused_rms_norm", TORCH_FN(RmsNorm));
  library.impl("_fused_rms_norm_backward", TORCH_FN(RmsNormBackward));
}

}  // namespace
}  // namespace oxbow::rehearsal
