// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include <type_traits>

#include "core/model/fused/fused_kernels.h"
#include "core/model/fused/kernel_parts.cuh"

namespace oxbow::model::fused {
namespace {

constexpr int kThreads = 128;  // A block has one wide row, or some short ones.
constexpr int kPack = 8;       // Neighbouring values that a thread holds.
constexpr int kPacksMax = 8;   // So many times, of a wide row.
constexpr int kPacksFew = 4;
constexpr int kShortMax = kWarp * kPack;
constexpr int64_t kRowsMax = int64_t{1} << 24;  // With their lanes they fit 32 bits.

struct Place {
  unsigned sample, token, head;
};

__device__ Place PlaceOf(unsigned row, const HeadRows& rows) {
  const auto heads = static_cast<unsigned>(rows.heads), tokens = static_cast<unsigned>(rows.tokens);
  const unsigned token = row / heads;
  return {token / tokens, token % tokens, row % heads};
}

// Turns N neighbouring values of a row from `column` on; `back` turns a gradient back.
template <bool kBack, int N>
__device__ void TurnValues(const Turn& turn, const Place& place, int column, float (&value)[N]) {
  if (turn.cos == nullptr) return;
  const int64_t from =
      place.sample * turn.sample + place.token * turn.token + column % static_cast<int>(turn.width);
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const int next = turn.of_pairs ? i : i + 1;
    const float c0 = turn.cos[from + i], s0 = turn.sin[from + i];
    const float c1 = turn.cos[from + next], s1 = turn.sin[from + next];
    const float a = value[i], b = value[i + 1];
    value[i] = kBack ? a * c0 + b * s1 : a * c0 - b * s0;
    value[i + 1] = kBack ? b * c1 - a * s0 : b * c1 + a * s1;
  }
}

template <int N, typename W>
__device__ void LoadWeight(const W* weight, int column, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to[i] = weight == nullptr ? 1.0F : static_cast<float>(weight[column + i]);
  }
}

// So many lanes share a row: some of a warp, or all of a block. Lanes past the last row repeat it
// and store nothing. Forward: out = y. Backward: out = dx.
template <bool kGradient, int kPacks, typename X, typename W, typename D, typename O>
__global__ void __launch_bounds__(kThreads)
    HeadRowKernel(const X* x, const W* weight, Turn turn, const D* dy, O* out, HeadRows rows,
                  unsigned count, int lanes) {
  __shared__ float shared[kThreads / kWarp];
  const unsigned wanted = (blockIdx.x * kThreads + threadIdx.x) / lanes;
  const Place place = PlaceOf(wanted < count ? wanted : count - 1, rows);
  const int packs = static_cast<int>(rows.width / kPack);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const auto width = static_cast<float>(rows.width);
  const int64_t head = place.head * rows.width;
  const int64_t of_x = place.sample * rows.x_sample + place.token * rows.x_token + head;
  const int64_t of_y = place.sample * rows.y_sample + place.token * rows.y_token + head;
  const auto sum = [&](float of_lane) {
    return kPacks == 1 ? LaneSum(of_lane, lanes) : BlockSum<kThreads>(of_lane, shared);
  };
  float value[kPacks][kPack], slope[kPacks][kPack];
  float squares = 0, inner = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int column = (lane + k * lanes) * kPack;
    if (column >= packs * kPack) break;
    if (!kGradient || rows.norm) Load(x + of_x + column, value[k]);
#pragma unroll
    for (int i = 0; i < kPack; ++i) squares += rows.norm ? value[k][i] * value[k][i] : 0;
  }
  const float r = rows.norm ? rsqrtf(sum(squares) / width + rows.eps) : 1;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int column = (lane + k * lanes) * kPack;
    if (column >= packs * kPack) break;
    float factor[kPack];
    LoadWeight(weight, column, factor);
    if constexpr (kGradient) {
      Load(dy + of_y + column, slope[k]);
      TurnValues<true>(turn, place, column, slope[k]);
#pragma unroll
      for (int i = 0; i < kPack && rows.norm; ++i)
        inner += (slope[k][i] *= factor[i]) * value[k][i];
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) slope[k][i] = value[k][i] * r * factor[i];
      TurnValues<false>(turn, place, column, slope[k]);
      if (wanted < count) Store(slope[k], out + of_y + column);
    }
  }
  if constexpr (kGradient) {
    const float mean = rows.norm ? sum(inner) / width * r * r : 0;
    const int64_t packed = (int64_t{place.sample} * rows.tokens + place.token) * rows.heads;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int column = (lane + k * lanes) * kPack;
      if (column >= packs * kPack) break;
#pragma unroll
      for (int i = 0; i < kPack && rows.norm; ++i) {
        slope[k][i] = r * (slope[k][i] - value[k][i] * mean);
      }
      if (wanted < count) Store(slope[k], out + packed * rows.width + head + column);
    }
  }
}

bool IsShort(int64_t width) {
  const int64_t lanes = width / kPack;
  return width % kPack == 0 && width <= kShortMax && (lanes & (lanes - 1)) == 0;
}

template <bool kGradient>
void Launch(Values x, Values weight, Turn turn, Values dy, Results out, HeadRows rows,
            cudaStream_t stream) {
  const auto count = static_cast<unsigned>(rows.samples * rows.tokens * rows.heads);
  const int lanes = IsShort(rows.width) ? static_cast<int>(rows.width / kPack) : kThreads;
  const auto blocks = static_cast<unsigned>((int64_t{count} * lanes + kThreads - 1) / kThreads);
  For(x.type, [&](auto* t) {
    For(weight.type, [&](auto* w) {
      For(dy.type, [&](auto* d) {
        For(out.type, [&](auto* o) {
          const auto run = [&](auto kernel) {
            kernel<<<blocks, kThreads, 0, stream>>>(As(x, t), As(weight, w), turn, As(dy, d),
                                                    As(out, o), rows, count, lanes);
          };
          using X = std::remove_pointer_t<decltype(t)>;
          using W = std::remove_pointer_t<decltype(w)>;
          using D = std::remove_pointer_t<decltype(d)>;
          using O = std::remove_pointer_t<decltype(o)>;
          if (lanes < kThreads) {
            run(HeadRowKernel<kGradient, 1, X, W, D, O>);
          } else if (rows.width <= int64_t{kThreads} * kPack * kPacksFew) {
            run(HeadRowKernel<kGradient, kPacksFew, X, W, D, O>);
          } else {
            run(HeadRowKernel<kGradient, kPacksMax, X, W, D, O>);
          }
        });
      });
    });
  });
}

}  // namespace

bool TakesHeadRows(const HeadRows& rows) {
  if (rows.samples * rows.tokens * rows.heads >= kRowsMax || rows.width <= 0) return false;
  const bool wide = rows.heads == 1 && rows.width % kPack == 0 &&
                    rows.width <= int64_t{kThreads} * kPack * kPacksMax;
  return IsShort(rows.width) || wide;
}

void TurnHeads(Values x, Values weight, Turn turn, Results y, HeadRows rows, cudaStream_t stream) {
  // x in place of a gradient, which no thread reads.
  Launch<false>(x, weight, turn, {nullptr, x.type}, y, rows, stream);
}

void TurnHeadsGradient(Values x, Values weight, Turn turn, Values dy, Results dx, HeadRows rows,
                       cudaStream_t stream) {
  Launch<true>(x, weight, turn, dy, dx, rows, stream);
}

}  // namespace oxbow::model::fused
