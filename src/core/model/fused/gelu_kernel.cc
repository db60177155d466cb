// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/gelu_kernel.h"

#include <algorithm>
#include <cstring>

// Compiled for several processors; the loader takes the best one. Its choice runs before a
// sanitizer is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OXBOW_VECTORS \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define OXBOW_VECTORS
#endif

namespace oxbow::model::fused {
namespace {

// All values go through the same vector loop, those at the end in a block that is filled up:
// another loop might round in another way.
constexpr int64_t kBlock = 64;

constexpr float kTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kCube = 0.044715f;
constexpr float kExponentMax = 87.0f;  // e^87 and e^-87 are ordinary numbers.

constexpr float kBendMax = 16.0f;

inline __attribute__((always_inline)) float Argument(float x) {
  return kTwiceRoot * (x + kCube * x * x * x);
}

// 1/(1 + e^-z); 0 where that is under e^-87.
inline __attribute__((always_inline)) float Logistic(float z) {
  float v = -z;
  v = v > kExponentMax ? kExponentMax : v;
  v = v < -kExponentMax ? -kExponentMax : v;
  // v = n ln 2 + r with |r| <= ln 2 / 2. The sum leaves n in the low bits of `shifted`.
  constexpr float kShift = 12582912.0f;  // 1.5 2^23
  const float shifted = v * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const float r = (v - n * 0.693359375f) - n * -2.12194440e-4f;
  float e = 1.9875691500e-4f;
  e = e * r + 1.3981999507e-3f;
  e = e * r + 8.3334519073e-3f;
  e = e * r + 4.1665795894e-2f;
  e = e * r + 1.6666665459e-1f;
  e = e * r + 5.0000001201e-1f;
  e = e * r * r + r + 1.0f;
  uint32_t power, bits;
  std::memcpy(&power, &shifted, sizeof(power));
  std::memcpy(&bits, &e, sizeof(bits));
  bits += power << 23;  // e^r 2^n
  std::memcpy(&e, &bits, sizeof(bits));
  const float s = 1.0f / (1.0f + e);
  return z < -kExponentMax ? 0.0f : s;
}

OXBOW_VECTORS void Blocks(const float* x, float* y, int64_t count) {
  for (int64_t block = 0; block < count; block += kBlock) {
    for (int64_t i = block; i < block + kBlock; ++i) y[i] = x[i] * Logistic(Argument(x[i]));
  }
}

OXBOW_VECTORS void GradientBlocks(const float* x, const float* dy, float* dx, int64_t count) {
  for (int64_t block = 0; block < count; block += kBlock) {
    for (int64_t i = block; i < block + kBlock; ++i) {
      const float s = Logistic(Argument(x[i]));
      // Farther out s (1 - s) is 0, and its factor too large for a float.
      float near = x[i] > kBendMax ? kBendMax : x[i];
      near = near < -kBendMax ? -kBendMax : near;
      const float slope = kTwiceRoot * (1.0f + 3.0f * kCube * near * near);
      dx[i] = dy[i] * (s + near * slope * s * (1.0f - s));
    }
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
