// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/ordered_sum.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "core/parallel/share.h"
#include "tests/testing/forked_ranks.h"

namespace oxbow::parallel {
namespace {

using ::testing::Each;

constexpr int64_t kLength = 101;

// Part p of numbers that differ so much that the order of their additions shows.
at::Tensor Part(int p) {
  const at::Tensor scale = at::tensor({1e4, 1., 3e-5, 7e6, .1, -2e3, 40.}, at::kFloat);
  return ((at::arange(kLength, at::kFloat) + 1000 * p) * 12.9898).sin() * scale[p % 7];
}

// The tree of ordered_sum.h over parts [begin, end), where the left half is the largest power of
// two that is not the whole.
at::Tensor Tree(int begin, int end) {
  if (end - begin == 1) return Part(begin);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  return Tree(begin, begin + half) + Tree(begin + half, end);
}

class OrderedSumTest : public ::testing::TestWithParam<int> {};

// Every number of parts up to two more than a power of two, also fewer than ranks; summed in whole
// and in small pieces.
TEST_P(OrderedSumTest, HasTheSameBitsForEveryNumberOfRanks) {
  const auto body = [](Ranks& ranks) {
    for (int count = 1; count <= 18; ++count) {
      const at::Tensor want = Tree(0, count);
      std::vector<int> owners;
      for (int p = 0; p < count; ++p) {
        owners.push_back(OwnerOf(static_cast<size_t>(p), static_cast<size_t>(count), ranks.size()));
      }
      for (const int64_t bytes_max : {int64_t{1} << 28, int64_t{4000}, int64_t{1}}) {
        OrderedSum sum(ranks, owners);
        for (int p = 0; p < count; ++p) {
          if (owners[static_cast<size_t>(p)] != ranks.rank()) continue;
          sum.Add(Part(p).clone());
          EXPECT_LE(static_cast<double>(sum.kept()), 2 * std::log2(count + 1)) << "part " << p;
        }
        at::Tensor total = at::full({kLength}, std::nan(""), at::kFloat);
        int64_t end = 0;
        const auto take = [&](int64_t begin, const at::Tensor& piece) {
          EXPECT_EQ(begin, std::exchange(end, begin + piece.numel()));
          total.narrow(0, begin, piece.numel()).copy_(piece);
        };
        ASSERT_TRUE(sum.Finish(kLength, take, bytes_max).ok());
        EXPECT_TRUE(at::equal(total, want)) << count << " parts, " << bytes_max << " bytes";
      }
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

INSTANTIATE_TEST_SUITE_P(Sizes, OrderedSumTest, ::testing::Values(1, 2, 3, 4));

TEST(OrderedSumOrderTest, ShowsInTheBits) {
  at::Tensor one_by_one = at::zeros({kLength}, at::kFloat);
  for (int p = 0; p < 18; ++p) one_by_one += Part(p);
  EXPECT_FALSE(at::equal(one_by_one, Tree(0, 18)));
}

}  // namespace
}  // namespace oxbow::parallel
