// SPDX-License-Identifier: Apache-2.0
// A row of a linear layer has the same bits wherever it stands in a batch, at any width.
#include "core/model/layers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace oxbow::model {
namespace {

Linear Drawn(int64_t in, int64_t out, int64_t rank) {
  Linear linear{.weight = at::randn({out, in}), .bias = at::randn({out})};
  if (rank == 0) return linear;
  linear.lora_a = at::randn({rank, in});
  linear.lora_b = at::randn({out, rank});
  return linear;
}

// Promise: An exported graph is diffusers' network.

TEST(LinearTest, ARowHasTheSameBitsWhereverItStands) {
  at::set_num_threads(1);
  at::manual_seed(11);
  for (int64_t in = 1; in <= 18; ++in) {
    for (const int64_t out : {1, 2, 3, 4, 7, 8, 11, 12, 16, 33}) {
      for (const int64_t rank : {0, 3, 6, 9}) {
        const Linear linear = Drawn(in, out, rank);
        const at::Tensor y = linear(at::randn({1, in}).repeat({40, 1}));
        EXPECT_TRUE(at::equal(y, y[0].expand_as(y))) << in << " to " << out << ", rank " << rank;
      }
    }
  }
}

TEST(LinearTest, PaddedSumsAreTheProductAndSoAreTheirGradients) {
  at::manual_seed(12);
  Linear linear = Drawn(10, 7, 5);
  linear.lora_scale = 0.5;
  const at::Tensor x = at::randn({9, 10}).set_requires_grad(true);
  const at::Tensor direction = at::randn({9, 7});
  (linear(x) * direction).sum().backward();
  const at::Tensor whole = linear.weight + 0.5 * at::mm(linear.lora_b, linear.lora_a);
  EXPECT_TRUE(at::allclose(linear(x), at::mm(x, whole.t()) + linear.bias, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(x.grad(), at::mm(direction, whole), 1e-5, 1e-5));
}

}  // namespace
}  // namespace oxbow::model
