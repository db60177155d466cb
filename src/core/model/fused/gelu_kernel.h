// SPDX-License-Identifier: Apache-2.0
// GELU with tanh and its gradient, of float32 values on a CPU.
//
//   gelu(x) = x / 2 (1 + tanh(u)) = x s(2u),  u = sqrt(2/pi) (x + .044715 x^3),  s(z) = 1/(1+e^-z)
//
// The right side needs one exponential, and loses nothing where tanh is near -1. The exponential is
// a polynomial with the coefficients of Cephes' expf, which a compiler makes vector instructions
// of; PyTorch calls a tanh that is exact to a unit in the last place, at about four times the cost.
// Values are within 1e-6 (|x| + 1) of the exact ones, gradients within 2e-6 (|x| + 1). A value's
// bits depend on it alone, not on its place.
#pragma once

#include <cstdint>

namespace oxbow::model::fused {

// y[i] = gelu(x[i]), i < count. y may be x.
void GeluTanh(const float* x, float* y, int64_t count);

// dx[i] = dy[i] gelu'(x[i]). dx may be dy.
void GeluTanhGradient(const float* x, const float* dy, float* dx, int64_t count);

}  // namespace oxbow::model::fused
