// SPDX-License-Identifier: Apache-2.0
// Loads, stores and sums that this folder's CUDA kernels share, and the choice of a kernel by its
// element types.
#pragma once

#include <cuda_bf16.h>

#include "core/model/fused/fused_kernels.h"

namespace oxbow::model::fused {

inline constexpr int kWarp = 32;

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
inline __device__ float LaneSum(float value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}

// The sum over a block of so many threads, in each thread. `shared`: a value for each warp.
template <int kThreads>
__device__ float BlockSum(float value, float* shared) {
  constexpr int kWarps = kThreads / kWarp;
  value = LaneSum(value, kWarp);
  __syncthreads();  // An earlier sum has been read.
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += shared[i];
  return sum;
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

}  // namespace oxbow::model::fused
