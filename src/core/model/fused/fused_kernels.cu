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

// The pointers of one pair: its condition, its gradient and its result.
template <typename S, typename Y>
struct Pair {
  const S* scale;
  const S* shift;
  const Y* dy;
  Y* y;
};

// A block normalises one row, which its threads hold in registers. Forward: y. Backward: dx.
template <bool kGradient, bool kTwo, int kPacked, typename X, typename S, typename Y>
__global__ void __launch_bounds__(kThreads)
    TokenKernel(const X* x, Pair<S, Y> first, Pair<S, Y> second, X* dx, Rows rows, float base,
                bool centred, float eps) {
  const auto pair = [&](int i) -> const Pair<S, Y>& { return i == 0 ? first : second; };
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
  const float mean = centred ? BlockSum<kThreads>(sum, shared) / width : 0;
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
#pragma unroll
      for (int p = 0; p < (kTwo ? 2 : 1); ++p) {
        float factor[4], offset[4], result[4];
        LoadCondition(pair(p).scale, condition + 4 * group, 0, factor);
        LoadCondition(pair(p).shift, condition + 4 * group, 0, offset);
#pragma unroll
        for (int i = 0; i < 4; ++i) result[i] = value[k][i] * r * (base + factor[i]) + offset[i];
        Store(result, pair(p).y + row * rows.width + 4 * group);
      }
    }
  } else {
    float slope[kPacked][4];
    float slopes = 0, inner = 0;
#pragma unroll
    for (int k = 0; k < kPacked; ++k) {
      const int group = threadIdx.x + k * kThreads;
      if (group >= groups) break;
      float factor[4];
      LoadCondition(first.scale, condition + 4 * group, 0, factor);
      Load(first.dy + row * rows.width + 4 * group, slope[k]);
#pragma unroll
      for (int i = 0; i < 4; ++i) slope[k][i] *= base + factor[i];
      if constexpr (kTwo) {
        float other[4];
        LoadCondition(second.scale, condition + 4 * group, 0, factor);
        Load(second.dy + row * rows.width + 4 * group, other);
#pragma unroll
        for (int i = 0; i < 4; ++i) slope[k][i] += other[i] * (base + factor[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        slopes += slope[k][i];
        inner += slope[k][i] * value[k][i] * r;
      }
    }
    const float slope_mean = centred ? BlockSum<kThreads>(slopes, shared) / width : 0;
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
void NormTokens(Values x, Modulations by, Values dy, Values dy2, Results y, Results y2, Results dx,
                Rows rows, float eps, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(rows.count);
  const bool few = rows.width <= int64_t{4} * kThreads * kPackedFew;
  For(x.type, [&](auto* t) {
    For(by.first.scale.type, [&](auto* s) {
      For(kGradient ? dy.type : y.type, [&](auto* v) {
        using X = std::remove_pointer_t<decltype(t)>;
        using S = std::remove_pointer_t<decltype(s)>;
        using Y = std::remove_pointer_t<decltype(v)>;
        const auto run = [&](auto kernel) {
          const auto pair = [&](const Modulation& of, const Values& slope, const Results& made) {
            return Pair<S, Y>{As(of.scale, s), As(of.shift, s), As(slope, v), As(made, v)};
          };
          kernel<<<blocks, kThreads, 0, stream>>>(As(x, t), pair(by.first, dy, y),
                                                  pair(by.second, dy2, y2), As(dx, t), rows,
                                                  by.base, by.centred, eps);
        };
        if (by.two) {
          few ? run(TokenKernel<kGradient, true, kPackedFew, X, S, Y>)
              : run(TokenKernel<kGradient, true, kPackedMax, X, S, Y>);
        } else {
          few ? run(TokenKernel<kGradient, false, kPackedFew, X, S, Y>)
              : run(TokenKernel<kGradient, false, kPackedMax, X, S, Y>);
        }
      });
    });
  });
}

}  // namespace

void NormModulate(Values x, Modulations by, Results y, Results y2, Rows rows, float eps,
                  cudaStream_t stream) {
  NormTokens<false>(x, by, {}, {}, y, y2, {}, rows, eps, stream);
}

void NormModulateGradient(Values x, Modulations by, Values dy, Values dy2, Results dx, Rows rows,
                          float eps, cudaStream_t stream) {
  NormTokens<true>(x, by, dy, dy2, {}, {}, dx, rows, eps, stream);
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
