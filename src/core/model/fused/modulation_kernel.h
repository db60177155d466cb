// SPDX-License-Identifier: Apache-2.0
// Layer norm with a scale and a shift per sample, and sums with a gate per sample, of float32
// tokens on a CPU, each in one pass, and their gradients. For one sample: tokens [tokens, width]
// side by side in memory, scale, shift and gate [width].
//
//   n = (x - mean(x)) rstd,  rstd = 1 / sqrt(mean((x - mean(x))^2) + eps),  over the width
//   y = n (1 + scale) + shift          sum = x + gate y
//
// Sums over the width and over tokens have one order, so a token's bits depend on it and its sample
// alone. Gradients of scale, shift and gate are summed over the tokens.
#pragma once

#include <cstdint>

namespace oxbow::model::fused {

// The width must be a multiple of it.
inline constexpr int64_t kModulationLanes = 16;

struct Tokens {
  int64_t count, width;
};

// `moments` [tokens, 2]: mean and rstd.
void ModulateTokens(Tokens tokens, const float* x, const float* scale, const float* shift,
                    float eps, float* y, float* moments);
void ModulateTokensGradient(Tokens tokens, const float* x, const float* scale, const float* moments,
                            const float* dy, float* dx, float* dscale, float* dshift);

void GateTokens(Tokens tokens, const float* x, const float* gate, const float* y, float* sum);
// The gradient of x is that of the sum.
void GateTokensGradient(Tokens tokens, const float* gate, const float* y, const float* dsum,
                        float* dy, float* dgate);

}  // namespace oxbow::model::fused
