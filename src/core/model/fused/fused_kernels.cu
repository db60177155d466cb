// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include <algorithm>
#include <type_traits>

#include "core/model/fused/fused_kernels.h"
#include "core/model/fused/kernel_parts.cuh"

namespace oxbow::model::fused {
namespace {

constexpr int kThreads = 128;  // A block normalises one row of tokens.
constexpr int kWarps = kThreads / kWarp;
constexpr int kGateThreads = 256;
constexpr int kPackedMax = 16;  // Groups of four values that a thread holds of a row.
constexpr int kPackedFew = 8;   // For most rows; more would take registers from other blocks.
constexpr int kBlocksMax = 1 << 16;

// Four values of a condition's row, or `none` four times where there is no condition.
template <typename S>
__device__ void LoadCondition(const S* from, int64_t at, float none, float (&to)[4]) {
  if (from != nullptr) {
    Load(from + at, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = none;
}

// A block normalises one row, which its threads hold in registers. Forward: y. Backward: dx.
template <bool kGradient, int kPacked, typename X, typename S, typename Y>
__global__ void __launch_bounds__(kThreads)
    TokenKernel(const X* x, const S* scale, const S* shift, const Y* dy, Y* y, X* dx, Rows rows,
                float base, float eps) {
  __shared__ float shared[kWarps];
  const int64_t row = blockIdx.x;
  const int groups = static_cast<int>(rows.width / 4);
  const int64_t condition = row / rows.per_sample * rows.stride;
  const auto width = static_cast<float>(rows.width);
  float value[kPacked][4];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kPacked; ++k) {
    const int group = threadIdx.x + k * kThreads;
    if (group >= groups) break;
    Load(x + row * rows.width + 4 * group, value[k]);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += value[k][i];
  }
  const float mean = BlockSum<kThreads>(sum, shared) / width;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kPacked; ++k) {
    if (threadIdx.x + k * kThreads >= groups) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      value[k][i] -= mean;
      squares += value[k][i] * value[k][i];
    }
  }
  const float r = rsqrtf(BlockSum<kThreads>(squares, shared) / width + eps);
  if constexpr (!kGradient) {
#pragma unroll
    for (int k = 0; k < kPacked; ++k) {
      const int group = threadIdx.x + k * kThreads;
      if (group >= groups) break;
      float factor[4], offset[4], result[4];
      LoadCondition(scale, condition + 4 * group, 0, factor);
      LoadCondition(shift, condition + 4 * group, 0, offset);
#pragma unroll
      for (int i = 0; i < 4; ++i) result[i] = value[k][i] * r * (base + factor[i]) + offset[i];
      Store(result, y + row * rows.width + 4 * group);
    }
  } else {
    float slope[kPacked][4];
    float slopes = 0, inner = 0;
#pragma unroll
    for (int k = 0; k < kPacked; ++k) {
      const int group = threadIdx.x + k * kThreads;
      if (group >= groups) break;
      float factor[4];
      LoadCondition(scale, condition + 4 * group, 0, factor);
      Load(dy + row * rows.width + 4 * group, slope[k]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        slope[k][i] *= base + factor[i];
        slopes += slope[k][i];
        inner += slope[k][i] * value[k][i] * r;
      }
    }
    const float slope_mean = BlockSum<kThreads>(slopes, shared) / width;
    const float inner_mean = BlockSum<kThreads>(inner, shared) / width;
#pragma unroll
    for (int k = 0; k < kPacked; ++k) {
      const int group = threadIdx.x + k * kThreads;
      if (group >= groups) break;
      float result[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        result[i] = r * (slope[k][i] - slope_mean - value[k][i] * r * inner_mean);
      }
      Store(result, dx + row * rows.width + 4 * group);
    }
  }
}

// Four values a turn. Forward: sum = x + gate y. Backward: dy = gate x, with dsum as x.
template <bool kGradient, typename X, typename G, typename Y, typename S>
__global__ void GateKernel(const X* x, const G* gate, const Y* y, S* result, Rows rows) {
  const int64_t groups = rows.width / 4;
  const int64_t all = rows.count * groups;
  for (int64_t at = blockIdx.x * int64_t{kGateThreads} + threadIdx.x; at < all;
       at += gridDim.x * int64_t{kGateThreads}) {
    const int64_t row = at / groups;
    float value[4], factor[4], other[4];
    Load(x + 4 * at, value);
    Load(gate + row / rows.per_sample * rows.stride + 4 * (at - row * groups), factor);
    if constexpr (kGradient) {
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] *= factor[i];
    } else {
      Load(y + 4 * at, other);
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] += factor[i] * other[i];
    }
    Store(value, result + 4 * at);
  }
}

unsigned GateBlocks(const Rows& rows) {
  const int64_t groups = rows.count * rows.width / 4;
  return static_cast<unsigned>(
      std::min<int64_t>((groups + kGateThreads - 1) / kGateThreads, kBlocksMax));
}

}  // namespace

bool TakesTokens(int64_t width) {
  return width > 0 && width % 4 == 0 && width <= int64_t{4} * kThreads * kPackedMax;
}

namespace {

template <bool kGradient>
void NormTokens(Values x, Modulation by, Values dy, Results result, Rows rows, float eps,
                cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(rows.count);
  For(x.type, [&](auto* t) {
    For(by.scale.type, [&](auto* s) {
      For(kGradient ? dy.type : result.type, [&](auto* y) {
        const auto run = [&](auto kernel) {
          kernel<<<blocks, kThreads, 0, stream>>>(As(x, t), As(by.scale, s), As(by.shift, s),
                                                  As(dy, y), As(result, y), As(result, t), rows,
                                                  by.base, eps);
        };
        using X = std::remove_pointer_t<decltype(t)>;
        using S = std::remove_pointer_t<decltype(s)>;
        using Y = std::remove_pointer_t<decltype(y)>;
        if (rows.width <= int64_t{4} * kThreads * kPackedFew) {
          run(TokenKernel<kGradient, kPackedFew, X, S, Y>);
        } else {
          run(TokenKernel<kGradient, kPackedMax, X, S, Y>);
        }
      });
    });
  });
}

}  // namespace

void NormModulate(Values x, Modulation by, Results y, Rows rows, float eps, cudaStream_t stream) {
  NormTokens<false>(x, by, {}, y, rows, eps, stream);
}

void NormModulateGradient(Values x, Modulation by, Values dy, Results dx, Rows rows, float eps,
                          cudaStream_t stream) {
  NormTokens<true>(x, by, dy, dx, rows, eps, stream);
}

void AddGated(Values x, Values gate, Values y, Results sum, Rows rows, cudaStream_t stream) {
  For(x.type, [&](auto* t) {
    For(gate.type, [&](auto* g) {
      For(y.type, [&](auto* v) {
        For(sum.type, [&](auto* s) {
          GateKernel<false><<<GateBlocks(rows), kGateThreads, 0, stream>>>(
              As(x, t), As(gate, g), As(y, v), As(sum, s), rows);
        });
      });
    });
  });
}

void AddGatedGradient(Values gate, Values dsum, Results dy, Rows rows, cudaStream_t stream) {
  For(dsum.type, [&](auto* t) {
    For(gate.type, [&](auto* g) {
      For(dy.type, [&](auto* v) {
        GateKernel<true><<<GateBlocks(rows), kGateThreads, 0, stream>>>(
            As(dsum, t), As(gate, g), As(dsum, t), As(dy, v), rows);
      });
    });
  });
}

}  // namespace oxbow::model::fused
