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
  at::Tensor x, r;  // (x - mean(x)) r, and r = 1 / sqrt(var(x) + eps); not centred: as of mean 0.
};

Normal NormalOf(const at::Tensor& x, bool centred, float eps) {
  const at::Tensor values = centred ? x - x.mean(-1, /*keepdim=*/true) : x;
  const at::Tensor r = at::rsqrt(values.square().mean(-1, /*keepdim=*/true) + eps);
  return {values * r, r};
}

// Heads [samples, tokens, heads, width] of these strides.
at::Tensor Heads(const void* address, Element type, const HeadRows& rows, int64_t sample,
                 int64_t token) {
  return At(address, type, {rows.samples, rows.tokens, rows.heads, rows.width},
            {sample, token, rows.width, 1});
}
at::Tensor PackedHeads(const void* address, Element type, const HeadRows& rows) {
  const int64_t token = rows.heads * rows.width;
  return Heads(address, type, rows, rows.tokens * token, token);
}

// cos or sin of each value of a row, [samples, tokens, 1, width].
at::Tensor Angles(const float* address, const Turn& turn, const HeadRows& rows) {
  const int64_t pair = turn.of_pairs ? 2 : 1;
  const at::Tensor table =
      At(address, Element::kFloat, {rows.samples, rows.tokens, 1, turn.width / pair},
         {turn.sample, turn.token, 0, pair});
  const at::Tensor one = turn.of_pairs ? table.repeat_interleave(2, -1) : table;
  return one.repeat({1, 1, 1, rows.width / turn.width});
}

// Values 2i, 2i + 1 as -b, a, or b, -a.
at::Tensor Crossed(const at::Tensor& x, bool back) {
  const at::Tensor pairs = x.unflatten(-1, {-1, 2});
  const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  return back ? at::stack({b, -a}, -1).flatten(-2) : at::stack({-b, a}, -1).flatten(-2);
}

at::Tensor Turned(const at::Tensor& x, const Turn& turn, const HeadRows& rows, bool back) {
  if (turn.cos == nullptr) return x;
  const at::Tensor cos = Angles(turn.cos, turn, rows), sin = Angles(turn.sin, turn, rows);
  return back ? x * cos + Crossed(x * sin, true) : x * cos + Crossed(x, false) * sin;
}

at::Tensor WeightOf(const Values& weight, const HeadRows& rows) {
  if (weight.data == nullptr) return at::ones({rows.width});
  return At(weight.data, weight.type, {rows.width}, {1}).to(at::kFloat);
}

// As many values as a part has heads, as one row each.
Rows AllOf(const HeadRows& rows) { return {rows.samples * rows.tokens * rows.heads, rows.width}; }

}  // namespace

bool TakesTokens(int64_t width) { return width % 4 == 0 && width <= 8192; }

void NormModulate(Values x, Modulations by, Results y, Results y2, Rows rows, float eps,
                  cudaStream_t) {
  const std::initializer_list<Element> one = {x.type, y.type}, both = {x.type, y.type, y.type};
  Run("oxbow::norm_modulate", x.data, rows, by.two ? both : one, [=] {
    const Normal normal = NormalOf(Tokens(x.data, x.type, rows).to(at::kFloat), by.centred, eps);
    const auto make = [&](const Modulation& of, const Results& made) {
      Tokens(made.data, made.type, rows)
          .copy_(normal.x * (by.base + Condition(of.scale, rows)) + Condition(of.shift, rows));
    };
    make(by.first, y);
    if (by.two) make(by.second, y2);
  });
}

void NormModulateGradient(Values x, Modulations by, Values dy, Values dy2, Results dx, Rows rows,
                          float eps, cudaStream_t) {
  const std::initializer_list<Element> one = {x.type, dy.type, dx.type};
  const std::initializer_list<Element> both = {x.type, dy.type, dy2.type, dx.type};
  Run("oxbow::norm_modulate_gradient", x.data, rows, by.two ? both : one, [=] {
    const Normal normal = NormalOf(Tokens(x.data, x.type, rows).to(at::kFloat), by.centred, eps);
    const auto slope_of = [&](const Modulation& of, const Values& slope) {
      return Tokens(slope.data, slope.type, rows).to(at::kFloat) *
             (by.base + Condition(of.scale, rows));
    };
    at::Tensor slope = slope_of(by.first, dy);
    if (by.two) slope = slope + slope_of(by.second, dy2);
    const at::Tensor inner = normal.x * (slope * normal.x).mean(-1, /*keepdim=*/true);
    if (by.centred) slope = slope - slope.mean(-1, /*keepdim=*/true);
    Tokens(dx.data, dx.type, rows).copy_(normal.r * (slope - inner));
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

bool TakesHeadRows(const HeadRows& rows) {
  const int64_t lanes = rows.width / 8;
  const bool one = rows.width <= 256 && (lanes & (lanes - 1)) == 0;
  return rows.width > 0 && rows.width % 8 == 0 &&
         rows.samples * rows.tokens * rows.heads < 1L << 31 &&
         (one || (rows.heads == 1 && rows.width <= 8192));
}

void TurnHeads(Values x, Values weight, Turn turn, Results y, HeadRows rows, cudaStream_t) {
  Run("oxbow::turn_heads", x.data, AllOf(rows), {x.type, y.type}, [=] {
    at::Tensor value = Heads(x.data, x.type, rows, rows.x_sample, rows.x_token).to(at::kFloat);
    if (rows.norm) {
      const at::Tensor r = at::rsqrt(value.square().mean(-1, /*keepdim=*/true) + rows.eps);
      value = value * r * WeightOf(weight, rows);
    }
    // A row of several heads turns each of them by the same angles.
    Heads(y.data, y.type, rows, rows.y_sample, rows.y_token)
        .copy_(Turned(value, turn, rows, /*back=*/false));
  });
}

void TurnHeadsGradient(Values x, Values weight, Turn turn, Values dy, Results dx, HeadRows rows,
                       cudaStream_t) {
  const std::initializer_list<Element> moved = {x.type, dy.type, dx.type};
  const std::initializer_list<Element> without = {dy.type, dx.type};
  Run("oxbow::turn_heads_gradient", dx.data, AllOf(rows), rows.norm ? moved : without, [=] {
    at::Tensor slope = Turned(
        Heads(dy.data, dy.type, rows, rows.y_sample, rows.y_token).to(at::kFloat), turn, rows,
        /*back=*/true);
    if (rows.norm) {
      const at::Tensor value =
          Heads(x.data, x.type, rows, rows.x_sample, rows.x_token).to(at::kFloat);
      const at::Tensor r = at::rsqrt(value.square().mean(-1, /*keepdim=*/true) + rows.eps);
      slope = slope * WeightOf(weight, rows);
      slope = r * (slope - value * (slope * value).mean(-1, /*keepdim=*/true) * r * r);
    }
    PackedHeads(dx.data, dx.type, rows).copy_(slope);
  });
}

}  // namespace oxbow::model::fused
