// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/modulation_kernel.h"

#include <algorithm>
#include <cmath>

#include "core/model/fused/vector_clones.h"

namespace oxbow::model::fused {
namespace {

constexpr int64_t kLanes = kModulationLanes;

// Numbers that a compiler keeps in vector registers.
struct Lanes {
  float value[kLanes] = {};

  inline __attribute__((always_inline)) float Sum() const {
    float sums[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) sums[j] = value[j];
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    return sums[0];
  }
};

inline __attribute__((always_inline)) float Mean(const float* x, int64_t width) {
  Lanes sum;
  for (int64_t i = 0; i < width; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) sum.value[j] += x[i + j];
  }
  return sum.Sum() / static_cast<float>(width);
}

// The variance first needs the mean: a difference of large sums would lose it.
inline __attribute__((always_inline)) float Variance(const float* x, float mean, int64_t width) {
  Lanes sum;
  for (int64_t i = 0; i < width; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float d = x[i + j] - mean;
      sum.value[j] += d * d;
    }
  }
  return sum.Sum() / static_cast<float>(width);
}

}  // namespace

OXBOW_VECTORS void ModulateTokens(Tokens tokens, const float* x, const float* scale,
                                  const float* shift, float eps, float* __restrict y,
                                  float* __restrict moments) {
  const int64_t width = tokens.width;
  for (int64_t t = 0; t < tokens.count; ++t, x += width, y += width, moments += 2) {
    const float mean = Mean(x, width);
    const float rstd = 1.0f / std::sqrt(Variance(x, mean, width) + eps);
    moments[0] = mean;
    moments[1] = rstd;
    for (int64_t i = 0; i < width; i += kLanes) {
      for (int64_t j = i; j < i + kLanes; ++j) {
        y[j] = (x[j] - mean) * rstd * (1.0f + scale[j]) + shift[j];
      }
    }
  }
}

OXBOW_VECTORS void ModulateTokensGradient(Tokens tokens, const float* x, const float* scale,
                                          const float* moments, const float* dy,
                                          float* __restrict dx, float* __restrict dscale,
                                          float* __restrict dshift) {
  const int64_t width = tokens.width;
  std::fill(dscale, dscale + width, 0.0f);
  std::fill(dshift, dshift + width, 0.0f);
  for (int64_t t = 0; t < tokens.count; ++t, x += width, dy += width, dx += width, moments += 2) {
    const float mean = moments[0], rstd = moments[1];
    Lanes sum, product;
    for (int64_t i = 0; i < width; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) {
        const float n = (x[i + j] - mean) * rstd;
        const float dn = dy[i + j] * (1.0f + scale[i + j]);
        sum.value[j] += dn;
        product.value[j] += dn * n;
        dscale[i + j] += dy[i + j] * n;
        dshift[i + j] += dy[i + j];
      }
    }
    const float plain = sum.Sum() / static_cast<float>(width);
    const float along = product.Sum() / static_cast<float>(width);
    for (int64_t i = 0; i < width; i += kLanes) {
      for (int64_t j = i; j < i + kLanes; ++j) {
        const float n = (x[j] - mean) * rstd;
        dx[j] = rstd * (dy[j] * (1.0f + scale[j]) - plain - n * along);
      }
    }
  }
}

OXBOW_VECTORS void GateTokens(Tokens tokens, const float* x, const float* gate, const float* y,
                              float* __restrict sum) {
  const int64_t width = tokens.width;
  for (int64_t t = 0; t < tokens.count; ++t, x += width, y += width, sum += width) {
    for (int64_t i = 0; i < width; i += kLanes) {
      for (int64_t j = i; j < i + kLanes; ++j) sum[j] = x[j] + gate[j] * y[j];
    }
  }
}

OXBOW_VECTORS void GateTokensGradient(Tokens tokens, const float* gate, const float* y,
                                      const float* dsum, float* __restrict dy,
                                      float* __restrict dgate) {
  const int64_t width = tokens.width;
  std::fill(dgate, dgate + width, 0.0f);
  for (int64_t t = 0; t < tokens.count; ++t, y += width, dsum += width, dy += width) {
    for (int64_t i = 0; i < width; i += kLanes) {
      for (int64_t j = i; j < i + kLanes; ++j) {
        dy[j] = dsum[j] * gate[j];
        dgate[j] += dsum[j] * y[j];
      }
    }
  }
}

}  // namespace oxbow::model::fused
