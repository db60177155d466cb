// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace oxbow {
namespace {

// The value that xxHash publishes for empty input, in its canonical byte order.
TEST(ChecksumTest, IsXxh3Of128Bits) {
  EXPECT_EQ(HexOf(Checksum128("")), "99aa06d3014798d86001c324468d497f");
}

TEST(ChecksumTest, EveryBitCounts) {
  const std::string bytes(300, 'x');
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string altered = bytes;
    altered[i / 8] = static_cast<char>(altered[i / 8] ^ (1 << i % 8));
    EXPECT_NE(Checksum128(altered), Checksum128(bytes)) << i;
  }
}

}  // namespace
}  // namespace oxbow
