// SPDX-License-Identifier: Apache-2.0
#include "base/philox.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace oxbow {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(PhiloxTest, MatchesTheReferenceVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(
      Philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
      (PhiloxCounter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      Philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (PhiloxCounter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(RandomStreamTest, DependsOnEveryFieldOfTheKey) {
  const StreamKey base{.seed = 1, .group = 2, .sample = 3, .step = 4};
  StreamKey other[4] = {base, base, base, base};
  other[0].seed = 9;
  other[1].group = 9;
  other[2].sample = 9;
  other[3].step = 9;
  const uint64_t value = RandomStream(base).NextU64();
  EXPECT_EQ(RandomStream(base).NextU64(), value);
  for (const StreamKey& key : other) EXPECT_NE(RandomStream(key).NextU64(), value);
}

TEST(RandomStreamTest, NormalsHaveTheMomentsOfANormal) {
  constexpr int kCount = 200'000;
  std::vector<double> draws(kCount);
  RandomStream({.seed = 7}).FillNormal(std::span<double>(draws));
  double mean = 0, square = 0, fourth = 0;
  for (const double z : draws) {
    mean += z / kCount;
    square += z * z / kCount;
    fourth += z * z * z * z / kCount;
  }
  // Five standard errors: sqrt(1/n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(mean, 0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(fourth, 3, 5 * std::sqrt(96.0 / kCount));
}

TEST(RandomStreamTest, BelowCoversItsRangeEvenly) {
  RandomStream stream({.seed = 3});
  std::vector<int> seen(7);
  for (int i = 0; i < 70'000; ++i) ++seen[stream.NextBelow(7)];
  for (const int count : seen) EXPECT_NEAR(count, 10'000, 5 * std::sqrt(10'000.0));
}

}  // namespace
}  // namespace oxbow
