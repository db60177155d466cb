// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include <algorithm>
#include <type_traits>

#include "core/model/fused/fused_kernels.h"

namespace oxbow::model::fused {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 128;  // A block normalises one row of tokens.
constexpr int kWarps = kThreads / kWarp;
constexpr int kHeadThreads = 256;  // A block normalises several heads.
constexpr int kPackedMax = 16;     // Groups of four values that a thread holds of a row.
constexpr int kPackedFew = 8;      // Of most rows; more would take registers from other blocks.
constexpr int kBlocksMax = 1 << 16;

// Neighbouring values, loaded and stored at once.
template <typename T, int N>
struct alignas(N * sizeof(T)) Packed {
  T value[N];
};

template <int N, typename T>
__device__ void Load(const T* from, float (&to)[N]) {
  const auto packed = *reinterpret_cast<const Packed<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = static_cast<float>(packed.value[i]);
}

template <int N, typename T>
__device__ void Store(const float (&from)[N], T* to) {
  Packed<T, N> packed;
#pragma unroll
  for (int i = 0; i < N; ++i) packed.value[i] = static_cast<T>(from[i]);
  *reinterpret_cast<Packed<T, N>*>(to) = packed;
}

// The sum over `lanes` neighbouring threads of a warp, in each of them.
__device__ float LaneSum(float value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}

// The sum over a block of kThreads, in each thread.
__device__ float BlockSum(float value, float* shared) {
  value = LaneSum(value, kWarp);
  __syncthreads();  // An earlier sum has been read.
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += shared[i];
  return sum;
}

// Some threads of a warp share a row. Those past the last row repeat it and store nothing.
template <bool kGradient, typename T, typename W>
__global__ void HeadKernel(const T* x, const W* weight, const T* dy, T* out, int64_t rows,
                           int width, float eps) {
  constexpr int kPack = 16 / sizeof(T);
  const int lanes = width / kPack;
  const int64_t wanted = (blockIdx.x * int64_t{kHeadThreads} + threadIdx.x) / lanes;
  const int64_t row = wanted < rows ? wanted : rows - 1;
  const int column = static_cast<int>(threadIdx.x % lanes) * kPack;
  float value[kPack], factor[kPack], result[kPack];
  Load(x + row * width + column, value);
#pragma unroll
  for (int i = 0; i < kPack; ++i) factor[i] = static_cast<float>(weight[column + i]);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPack; ++i) squares += value[i] * value[i];
  const float r = rsqrtf(LaneSum(squares, lanes) / static_cast<float>(width) + eps);
  if constexpr (kGradient) {
    float slope[kPack], inner = 0;
    Load(dy + row * width + column, slope);
#pragma unroll
    for (int i = 0; i < kPack; ++i) inner += (slope[i] *= factor[i]) * value[i];
    const float mean = LaneSum(inner, lanes) / static_cast<float>(width) * r * r;
#pragma unroll
    for (int i = 0; i < kPack; ++i) result[i] = r * (slope[i] - value[i] * mean);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) result[i] = value[i] * r * factor[i];
  }
  if (wanted < rows) Store(result, out + row * width + column);
}

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
  const float mean = BlockSum(sum, shared) / width;
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
  const float r = rsqrtf(BlockSum(squares, shared) / width + eps);
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
    const float slope_mean = BlockSum(slopes, shared) / width;
    const float inner_mean = BlockSum(inner, shared) / width;
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
  for (int64_t at = blockIdx.x * int64_t{kHeadThreads} + threadIdx.x; at < all;
       at += gridDim.x * int64_t{kHeadThreads}) {
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

// Calls `work` with a null pointer of each element type.
template <typename Work>
void For(Element type, const Work& work) {
  if (type == Element::kFloat) {
    work(static_cast<float*>(nullptr));
  } else {
    work(static_cast<__nv_bfloat16*>(nullptr));
  }
}

template <typename T>
const T* As(const Values& values, T*) {
  return static_cast<const T*>(values.data);
}
template <typename T>
T* As(const Results& results, T*) {
  return static_cast<T*>(results.data);
}

template <bool kGradient>
void Heads(Values x, Values weight, Values dy, Results out, Rows rows, float eps,
           cudaStream_t stream) {
  For(x.type, [&](auto* t) {
    For(weight.type, [&](auto* w) {
      const int64_t lanes = rows.width * sizeof(*t) / 16;
      const auto blocks =
          static_cast<unsigned>((rows.count * lanes + kHeadThreads - 1) / kHeadThreads);
      HeadKernel<kGradient><<<blocks, kHeadThreads, 0, stream>>>(As(x, t), As(weight, w), As(dy, t),
                                                                 As(out, t), rows.count,
                                                                 static_cast<int>(rows.width), eps);
    });
  });
}

unsigned GateBlocks(const Rows& rows) {
  const int64_t groups = rows.count * rows.width / 4;
  return static_cast<unsigned>(
      std::min<int64_t>((groups + kHeadThreads - 1) / kHeadThreads, kBlocksMax));
}

}  // namespace

bool TakesHeads(Element type, int64_t width) {
  const int64_t pack = type == Element::kFloat ? 4 : 8;
  const int64_t lanes = width / pack;
  return width % pack == 0 && lanes >= 1 && lanes <= kWarp && (lanes & (lanes - 1)) == 0;
}

void RmsNorm(Values x, Values weight, Results y, Rows rows, float eps, cudaStream_t stream) {
  Heads<false>(x, weight, x, y, rows, eps, stream);
}

void RmsNormGradient(Values x, Values weight, Values dy, Results dx, Rows rows, float eps,
                     cudaStream_t stream) {
  Heads<true>(x, weight, dy, dx, rows, eps, stream);
}

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
          GateKernel<false><<<GateBlocks(rows), kHeadThreads, 0, stream>>>(
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
        GateKernel<true><<<GateBlocks(rows), kHeadThreads, 0, stream>>>(
            As(dsum, t), As(gate, g), As(dsum, t), As(dy, v), rows);
      });
    });
  });
}

}  // namespace oxbow::model::fused
