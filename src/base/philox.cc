// SPDX-License-Identifier: Apache-2.0
#include "base/philox.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace oxbow {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;

// The 2^-53 grid shifted by half a cell, so that log() never gets zero.
double OpenUniform(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 21) ^ (low >> 11);
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-53;
}

struct NormalPair {
  double first;
  double second;
};

NormalPair BoxMuller(const PhiloxCounter& words) {
  const double radius = std::sqrt(-2.0 * std::log(OpenUniform(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * OpenUniform(words[2], words[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint64_t Mix64(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// The key holds seed and group; the counter holds sample, step and the block number. Group enters
// both, so that in practice no two (seed, group) pairs share a stream.
RandomStream::RandomStream(StreamKey key)
    : key_([&] {
        const uint64_t mixed = Mix64(Mix64(key.seed) ^ key.group);
        return PhiloxKey{static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
      }()),
      subject_((static_cast<uint64_t>(key.sample) << 32) | key.step) {}

uint32_t RandomStream::NextU32() {
  if (used_ == 4) {
    words_ = Philox4x32({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32),
                         static_cast<uint32_t>(subject_), static_cast<uint32_t>(subject_ >> 32)},
                        key_);
    ++block_;
    used_ = 0;
  }
  return words_[static_cast<size_t>(used_++)];
}

uint64_t RandomStream::NextU64() {
  const uint64_t high = NextU32();
  return (high << 32) | NextU32();
}

double RandomStream::NextUniform() { return static_cast<double>(NextU64() >> 11) * 0x1.0p-53; }

uint64_t RandomStream::NextBelow(uint64_t bound) {
  OXBOW_CHECK(bound > 0) << "bound of a random draw";
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t value = NextU64();
  while (value >= limit) value = NextU64();
  return value % bound;
}

double RandomStream::NextNormal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const NormalPair pair = BoxMuller({NextU32(), NextU32(), NextU32(), NextU32()});
  spare_ = pair.second;
  has_spare_ = true;
  return pair.first;
}

}  // namespace oxbow
