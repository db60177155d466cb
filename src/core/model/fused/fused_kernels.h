// SPDX-License-Identifier: Apache-2.0
// CUDA kernels of the three element-wise layers that a transformer's blocks run most often. PyTorch
// has them as several kernels each, or as one that is slow for short rows. Sums are in float32, in
// a fixed order.
//
// Pointers are to device memory, aligned to 16 bytes; tensors are contiguous but for the rows of
// scale, shift and gate, which are `stride` elements apart. Nothing waits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace oxbow::model::fused {

enum class Element { kFloat, kBFloat16 };

// A tensor's elements and their type.
struct Values {
  const void* data = nullptr;
  Element type = Element::kFloat;
};
struct Results {
  void* data = nullptr;
  Element type = Element::kFloat;
};

// Rows of `width` values.
struct Rows {
  int64_t count = 0;
  int64_t width = 0;
  int64_t per_sample = 1;  // Consecutive rows that share a row of scale, shift or gate.
  int64_t stride = 0;      // Between those rows.
};

// True for widths that RmsNorm takes: 2^k times the values in 16 bytes, up to 32 times.
bool TakesHeads(Element type, int64_t width);

// y = x rsqrt(mean(x^2) + eps) weight; x, y of one type, weight [width].
void RmsNorm(Values x, Values weight, Results y, Rows rows, float eps, cudaStream_t stream);
// dx for the gradient dy of RmsNorm's y. All but `weight` of one type.
void RmsNormGradient(Values x, Values weight, Values dy, Results dx, Rows rows, float eps,
                     cudaStream_t stream);

// True for widths that NormModulate takes: multiples of 4 up to 8192.
bool TakesTokens(int64_t width);

// A factor base + scale and a shift; 0 where either has no data. Both of one type.
struct Modulation {
  Values scale, shift;
  float base = 1;
};

// y = (x - mean(x)) rsqrt(var(x) + eps) (base + scale) + shift.
void NormModulate(Values x, Modulation by, Results y, Rows rows, float eps, cudaStream_t stream);
// dx, of x's type, for the gradient dy of NormModulate's y.
void NormModulateGradient(Values x, Modulation by, Values dy, Results dx, Rows rows, float eps,
                          cudaStream_t stream);

// sum = x + gate y. Widths as for NormModulate.
void AddGated(Values x, Values gate, Values y, Results sum, Rows rows, cudaStream_t stream);
// dy = gate dsum.
void AddGatedGradient(Values gate, Values dsum, Results dy, Rows rows, cudaStream_t stream);

}  // namespace oxbow::model::fused
