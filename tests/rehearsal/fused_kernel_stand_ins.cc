// SPDX-License-Identifier: Apache-2.0
// The kernels of core/model/fused/fused_kernels.cu, which only CUDA's compiler can build: the same
// formulas in CPU LibTorch's operators. They count as one kernel each.
#include <ATen/ATen.h>

#include <functional>
#include <initializer_list>

#include "core/model/fused/fused_kernels.h"
#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::model::fused {
namespace {

at::ScalarType TypeOf(Element type) { return type == Element::kFloat ? at::kFloat : at::kBFloat16; }

// The kernel side of what lies at a device's address.
at::Tensor At(const void* address, Element type, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto& memory =
      rehearsal::DeviceMemory::Of(rehearsal::DeviceMemory::Holding(address)->device());
  return at::from_blob(memory.KernelSide(address), sizes, strides, TypeOf(type));
}

at::Tensor AllRows(const void* address, Element type, const Rows& rows) {
  return At(address, type, {rows.count, rows.width}, {rows.width, 1});
}

// [samples, 1, D] beside tokens of [samples, N, D]; 0 without data.
at::Tensor Condition(const Values& values, const Rows& rows) {
  if (values.data == nullptr) return at::zeros({1, 1, rows.width});
  const int64_t samples = rows.count / rows.per_sample;
  return At(values.data, values.type, {samples, 1, rows.width}, {rows.stride, rows.width, 1})
      .to(at::kFloat);
}

at::Tensor Tokens(const void* address, Element type, const Rows& rows) {
  return AllRows(address, type, rows)
      .view({rows.count / rows.per_sample, rows.per_sample, rows.width});
}

size_t SizeOf(Element type) { return type == Element::kFloat ? 4 : 2; }

// Counts a kernel that moves so many values of each type for every element of its rows.
void Run(const char* name, const void* address, const Rows& rows,
         std::initializer_list<Element> moved, const std::function<void()>& work) {
  const c10::DeviceIndex device = rehearsal::DeviceMemory::Holding(address)->device();
  double bytes = 0;
  for (const Element type : moved) {
    bytes += static_cast<double>(rows.count * rows.width) * static_cast<double>(SizeOf(type));
  }
  rehearsal::TheLog().Kernel(device, name, bytes, 0);
  if (rehearsal::TheSettings().mode == rehearsal::Mode::kDry) return;
  rehearsal::Enqueue(rehearsal::CurrentStream(device), [work] {
    const rehearsal::KernelScope scope;
    work();
  });
}

struct Normal {
  at::Tensor x, r;  // (x - mean(x)) r, and r = 1 / sqrt(var(x) + eps).
};

Normal NormalOf(const at::Tensor& x, float eps) {
  const at::Tensor centred = x - x.mean(-1, /*keepdim=*/true);
  const at::Tensor r = at::rsqrt(centred.square().mean(-1, /*keepdim=*/true) + eps);
  return {centred * r, r};
}

}  // namespace

bool TakesHeads(Element type, int64_t width) {
  const auto pack = static_cast<int64_t>(16 / SizeOf(type));
  const int64_t lanes = width / pack;
  return width % pack == 0 && lanes >= 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0;
}

bool TakesTokens(int64_t width) { return width % 4 == 0 && width <= 8192; }

void RmsNorm(Values x, Values weight, Results y, Rows rows, float eps, cudaStream_t) {
  Run("oxbow::rms_norm", x.data, rows, {x.type, y.type}, [=] {
    const at::Tensor exact = AllRows(x.data, x.type, rows).to(at::kFloat);
    const at::Tensor r = at::rsqrt(exact.square().mean(-1, /*keepdim=*/true) + eps);
    AllRows(y.data, y.type, rows)
        .copy_(exact * r * At(weight.data, weight.type, {rows.width}, {1}).to(at::kFloat));
  });
}

void RmsNormGradient(Values x, Values weight, Values dy, Results dx, Rows rows, float eps,
                     cudaStream_t) {
  Run("oxbow::rms_norm_gradient", x.data, rows, {x.type, dy.type, dx.type}, [=] {
    const at::Tensor exact = AllRows(x.data, x.type, rows).to(at::kFloat);
    const at::Tensor r = at::rsqrt(exact.square().mean(-1, /*keepdim=*/true) + eps);
    const at::Tensor slope = AllRows(dy.data, dy.type, rows).to(at::kFloat) *
                             At(weight.data, weight.type, {rows.width}, {1}).to(at::kFloat);
    const at::Tensor mean = (slope * exact).mean(-1, /*keepdim=*/true) * r * r;
    AllRows(dx.data, dx.type, rows).copy_(r * (slope - exact * mean));
  });
}

void NormModulate(Values x, Modulation by, Results y, Rows rows, float eps, cudaStream_t) {
  Run("oxbow::norm_modulate", x.data, rows, {x.type, y.type}, [=] {
    const Normal normal = NormalOf(Tokens(x.data, x.type, rows).to(at::kFloat), eps);
    Tokens(y.data, y.type, rows)
        .copy_(normal.x * (by.base + Condition(by.scale, rows)) + Condition(by.shift, rows));
  });
}

void NormModulateGradient(Values x, Modulation by, Values dy, Results dx, Rows rows, float eps,
                          cudaStream_t) {
  Run("oxbow::norm_modulate_gradient", x.data, rows, {x.type, dy.type, dx.type}, [=] {
    const Normal normal = NormalOf(Tokens(x.data, x.type, rows).to(at::kFloat), eps);
    const at::Tensor slope =
        Tokens(dy.data, dy.type, rows).to(at::kFloat) * (by.base + Condition(by.scale, rows));
    const at::Tensor inner = (slope * normal.x).mean(-1, /*keepdim=*/true);
    Tokens(dx.data, dx.type, rows)
        .copy_(normal.r * (slope - slope.mean(-1, /*keepdim=*/true) - normal.x * inner));
  });
}

void AddGated(Values x, Values gate, Values y, Results sum, Rows rows, cudaStream_t) {
  Run("oxbow::add_gated", x.data, rows, {x.type, y.type, sum.type}, [=] {
    Tokens(sum.data, sum.type, rows)
        .copy_(Tokens(x.data, x.type, rows).to(at::kFloat) +
               Condition(gate, rows) * Tokens(y.data, y.type, rows).to(at::kFloat));
  });
}

void AddGatedGradient(Values gate, Values dsum, Results dy, Rows rows, cudaStream_t) {
  Run("oxbow::add_gated_gradient", dsum.data, rows, {dsum.type, dy.type}, [=] {
    Tokens(dy.data, dy.type, rows)
        .copy_(Condition(gate, rows) * Tokens(dsum.data, dsum.type, rows).to(at::kFloat));
  });
}

}  // namespace oxbow::model::fused
