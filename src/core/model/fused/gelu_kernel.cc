// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/gelu_kernel.h"

#include <algorithm>
#include <cstring>

#include "core/model/fused/vector_clones.h"

namespace oxbow::model::fused {
namespace {

// Eight values at a time, by the compiler's vector types: a loop over single values with the same
// selections is made vector instructions of for some processors alone. All values go through it,
// those at the end in a block that is filled up: another loop might round in another way.
constexpr int64_t kBlock = 8;
using Vector = float __attribute__((vector_size(kBlock * sizeof(float))));
using Bits = uint32_t __attribute__((vector_size(kBlock * sizeof(float))));

#define OXBOW_INLINE inline __attribute__((always_inline))

constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCube = 0.044715f;
constexpr float kExponentMax = 87.0f;  // e^87 and e^-87 are ordinary numbers.

constexpr float kBendMax = 16.0f;

// References throughout: how vectors are passed by value depends on the processor.
OXBOW_INLINE void Load(const float* from, Vector& v) { std::memcpy(&v, from, sizeof(v)); }
OXBOW_INLINE void Store(const Vector& v, float* to) { std::memcpy(to, &v, sizeof(v)); }

OXBOW_INLINE void Clamp(float most, Vector& v) {
  const Vector high = Vector{} + most, low = Vector{} - most;
  v = v > high ? high : v;
  v = v < low ? low : v;
}

// s = 1/(1 + e^-z) of z = 2u; 0 where that is under e^-87.
OXBOW_INLINE void Logistic(const Vector& x, Vector& s) {
  const Vector z = kTwiceRoot * (x + kCube * x * x * x);
  Vector v = -z;
  Clamp(kExponentMax, v);
  // v = n ln 2 + r with |r| <= ln 2 / 2. The sum leaves n in the low bits of `shifted`.
  constexpr float kShift = 12582912.0f;  // 1.5 2^23
  const Vector shifted = v * 1.44269504f + kShift;
  const Vector n = shifted - kShift;
  const Vector r = (v - n * 0.693359375f) - n * -2.12194440e-4f;
  Vector e = r * 1.9875691500e-4f + 1.3981999507e-3f;
  e = e * r + 8.3334519073e-3f;
  e = e * r + 4.1665795894e-2f;
  e = e * r + 1.6666665459e-1f;
  e = e * r + 5.0000001201e-1f;
  e = e * r * r + r + 1.0f;
  Bits power, bits;
  std::memcpy(&power, &shifted, sizeof(power));
  std::memcpy(&bits, &e, sizeof(bits));
  bits += power << 23;  // e^r 2^n
  std::memcpy(&e, &bits, sizeof(bits));
  s = 1.0f / (1.0f + e);
  s = z < Vector{} - kExponentMax ? Vector{} : s;
}

OXBOW_VECTORS void Blocks(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kBlock) {
    Vector v, s;
    Load(x + i, v);
    Logistic(v, s);
    Store(v * s, y + i);
  }
}

OXBOW_VECTORS void GradientBlocks(const float* x, const float* dy, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; i += kBlock) {
    Vector near, s, gradient;
    Load(x + i, near);
    Load(dy + i, gradient);
    Logistic(near, s);
    // Farther out s (1 - s) is 0, and its factor too large for a float.
    Clamp(kBendMax, near);
    const Vector slope = kTwiceRoot * (1.0f + 3.0f * kCube * near * near);
    Store(gradient * (s + near * slope * s * (1.0f - s)), dx + i);
  }
}

}  // namespace

void GeluTanh(const float* x, float* y, int64_t count) {
  const int64_t whole = count - count % kBlock;
  Blocks(x, y, whole);
  if (whole == count) return;
  float rest[kBlock] = {};
  std::copy(x + whole, x + count, rest);
  Blocks(rest, rest, kBlock);
  std::copy(rest, rest + (count - whole), y + whole);
}

void GeluTanhGradient(const float* x, const float* dy, float* dx, int64_t count) {
  const int64_t whole = count - count % kBlock;
  GradientBlocks(x, dy, dx, whole);
  if (whole == count) return;
  float rest_x[kBlock] = {}, rest[kBlock] = {};
  std::copy(x + whole, x + count, rest_x);
  std::copy(dy + whole, dy + count, rest);
  GradientBlocks(rest_x, rest, rest, kBlock);
  std::copy(rest, rest + (count - whole), dx + whole);
}

}  // namespace oxbow::model::fused
