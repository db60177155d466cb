// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
//
// A draw is a pure function of (key, counter). Keying by what a number is *for* (run seed, group,
// sample, step) makes noise independent of which process draws it, in which order, and how often.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace oxbow {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Four 32-bit words, uniform. Pure.
PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key);

// Names one stream of numbers. Streams with different fields are independent.
struct StreamKey {
  uint64_t seed = 0;    // The run's seed.
  uint64_t group = 0;   // Group id, or any other 64-bit id.
  uint32_t sample = 0;  // Index within the group.
  uint32_t step = 0;    // Denoising step; StreamPurpose lists the values that are not steps.
};

// Values of StreamKey::step for draws that do not belong to a denoising step.
enum StreamPurpose : uint32_t {
  kInitialLatent = 0xffff0000u,
  kTrainingTime = 0xffff0001u,
  kBufferDraw = 0xffff0002u,
  kPromptOrder = 0xffff0003u,
  kShuffle = 0xffff0004u,
  kWeightInit = 0xffff0005u,
  kTaskData = 0xffff0006u,
  kWindow = 0xffff0007u,
  kAnchorTime = 0xffff0008u,
  kAnchorNoise = 0xffff0009u,
  kTrainingPairs = 0xffff0010u,
  kTrainingNoise = 0xfffe0000u,  // For pair k: kTrainingNoise + k.
};

// A sequential reader of one stream. Cheap to make; not thread-safe.
class RandomStream {
 public:
  explicit RandomStream(StreamKey key);

  uint32_t NextU32();
  uint64_t NextU64();
  double NextUniform();                // [0, 1), 53 bits.
  uint64_t NextBelow(uint64_t bound);  // [0, bound), unbiased. Requires bound > 0.
  double NextNormal();                 // Standard normal (Box-Muller in float64).

  // Fills `out` with standard normals. The i-th value depends only on the key and i.
  template <typename T>
  void FillNormal(std::span<T> out) {
    for (T& value : out) value = static_cast<T>(NextNormal());
  }

 private:
  const PhiloxKey key_;
  const uint64_t subject_;
  uint64_t block_ = 0;
  PhiloxCounter words_{};
  int used_ = 4;
  bool has_spare_ = false;
  double spare_ = 0;
};

// SplitMix64 finaliser: mixes a 64-bit value; for building keys and ids. Pure.
uint64_t Mix64(uint64_t value);

}  // namespace oxbow
