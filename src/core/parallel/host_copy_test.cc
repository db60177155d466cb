// SPDX-License-Identifier: Apache-2.0
// A copy of a copy is one, though the two share their memory until one of them is written to.
#include "core/parallel/host_copy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace oxbow::parallel {
namespace {

constexpr int64_t kPiece = int64_t{1} << 24;

at::Tensor Whole(const HostCopy& copy) {
  at::Tensor whole = at::empty({copy.length()}, at::kFloat);
  copy.PutBack(whole);
  return whole;
}

// Copies beside tensors that are copied for good, over random writes and copies of one another.
// Promise: A checkpoint is of the step's end, whatever follows. Weights, average, moments and
// copies of the policy leave a GPU while the next updates are queued; moments in host memory are
// shared with the checkpoint until an update writes to them. The checkpoint has their values at the
// end of the step.
TEST(HostCopyTest, CopiesThatShareMemoryAreAsCopiesThatDoNot) {
  constexpr uint32_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  constexpr int64_t kLength = kPiece + 100;  // Two pieces, the second of which is short.
  std::vector<HostCopy> copies(3, HostCopy::Zeros(kLength, at::kCPU));
  std::vector<at::Tensor> wanted(3, at::zeros({kLength}));
  for (int round = 0; round < 15; ++round) {
    const size_t of = random() % 3, to = random() % 3;
    if (round % 3 == 0) {
      copies[to] = copies[of];
      wanted[to] = wanted[of].clone();
      continue;
    }
    const bool all = random() % 4 == 0;  // Whole pieces, as optimisers write them.
    const int64_t begin = all ? 0 : kPiece - 50 + static_cast<int64_t>(random() % 60);
    const int64_t length = all ? kLength : 1 + static_cast<int64_t>(random() % 40);
    const at::Tensor part = at::full({length}, static_cast<float>(round));
    copies[to].Write(begin, part);
    wanted[to] = wanted[to].clone();
    wanted[to].narrow(0, begin, length).copy_(part);
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(at::equal(Whole(copies[i]), wanted[i])) << round;
  }
}

TEST(HostCopyTest, WhatIsReleasedInACopyIsStillInTheOther) {
  HostCopy one(at::ones({kPiece + 3}));
  const HostCopy other = one;
  one.Release(kPiece);
  EXPECT_TRUE(at::equal(Whole(other), at::ones({kPiece + 3})));
  EXPECT_DEATH(one.PutBack(at::empty({kPiece + 3})), "elements from 0");
}

}  // namespace
}  // namespace oxbow::parallel
