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

// True for widths that NormModulate takes: multiples of 4 up to 8192.
bool TakesTokens(int64_t width);

// A factor base + scale and a shift; 0 where either has no data. Both of one type.
struct Modulation {
  Values scale, shift;
};

// One pair, or two of one type, for the same normal values.
struct Modulations {
  Modulation first, second;
  bool two = false;
  float base = 1;
  bool centred = true;  // False: an RMS norm, as if mean(x) were 0.
};

// y = (x - mean(x)) rsqrt(var(x) + eps) (base + scale) + shift. y2, of y's type, by the second
// pair.
void NormModulate(Values x, Modulations by, Results y, Results y2, Rows rows, float eps,
                  cudaStream_t stream);
// dx, of x's type, for the gradients dy, dy2 of NormModulate's y, y2.
void NormModulateGradient(Values x, Modulations by, Values dy, Values dy2, Results dx, Rows rows,
                          float eps, cudaStream_t stream);

// sum = x + gate y. Widths as for NormModulate.
void AddGated(Values x, Values gate, Values y, Results sum, Rows rows, cudaStream_t stream);
// dy = gate dsum.
void AddGatedGradient(Values gate, Values dsum, Results dy, Rows rows, cudaStream_t stream);

// Rows of heads: `heads` rows of `width` values for each of a sample's tokens, side by side.
// Strides of samples and tokens are in values, multiples of 8.
struct HeadRows {
  int64_t samples = 0, tokens = 0, heads = 1, width = 0;
  int64_t x_sample = 0, x_token = 0;
  int64_t y_sample = 0, y_token = 0;
  bool norm = false;
  float eps = 0;
};

// A turn of each pair of values 2i, 2i + 1 of a row, of float32 angles of a token's own:
// a cos - b sin, b cos + a sin. A row's pairs repeat those of `width` values.
struct Turn {
  const float* cos = nullptr;  // Null: none.
  const float* sin = nullptr;
  int64_t sample = 0, token = 0;  // Strides, in values.
  int64_t width = 0;
  bool of_pairs =
      false;  // Cosine and sine of a pair lie at 2i alone; else of each value at its own.
};

// True for rows of 2^k 8 values up to 256, and for one row a token of 8 k values up to 8192.
bool TakesHeadRows(const HeadRows& rows);

// y = turn(x rsqrt(mean(x^2) + eps) weight), the norm where rows.norm is set; weight without data
// is 1.
void TurnHeads(Values x, Values weight, Turn turn, Results y, HeadRows rows, cudaStream_t stream);
// dx, side by side, for the gradient dy of TurnHeads' y, which has y's strides.
void TurnHeadsGradient(Values x, Values weight, Turn turn, Values dy, Results dx, HeadRows rows,
                       cudaStream_t stream);

}  // namespace oxbow::model::fused
