// SPDX-License-Identifier: Apache-2.0
// A packed weight multiplies as the plain one does, and a row has its bits in any company.
#include "core/model/packed_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "core/model/layers.h"

namespace oxbow::model {
namespace {

// Promise: A reward's products are those of its weights. Weights that are packed for a CPU give the
// products of plain ones up to rounding, and a row has the same bits in any company.

TEST(PackedWeightsTest, ProductsAreThoseOfPlainWeights) {
  at::manual_seed(21);
  for (const auto& [in, out] : {std::pair(1, 1), {3, 5}, {64, 48}, {100, 7}, {768, 512}}) {
    for (const bool biased : {false, true}) {
      const Linear plain{.weight = at::randn({out, in}),
                         .bias = biased ? at::randn({out}) : at::Tensor()};
      const Linear packed{.weight = Packed(plain.weight), .bias = plain.bias};
      const at::Tensor x = at::randn({2, 9, in});
      EXPECT_TRUE(at::allclose(packed(x), plain(x), 1e-4, 1e-4)) << in << " to " << out;
      for (const at::Tensor& part : ApplyEach(x, {packed, packed})) {
        EXPECT_TRUE(at::equal(part, packed(x))) << in << " to " << out;
      }
    }
  }
}

TEST(PackedWeightsTest, ARowHasItsBitsInAnyCompany) {
  at::set_num_threads(1);
  at::manual_seed(22);
  for (const auto& [in, out] : {std::pair(5, 3), {64, 48}, {96, 384}, {768, 768}, {512, 2048}}) {
    const Linear packed{.weight = Packed(at::randn({out, in}))};
    const at::Tensor x = at::randn({300, in});
    const at::Tensor all = packed(x);
    for (const int64_t rows : {1, 2, 7, 8, 50, 128}) {
      EXPECT_TRUE(at::equal(packed(x.narrow(0, 0, rows)), all.narrow(0, 0, rows)))
          << in << " to " << out << ", " << rows << " rows";
    }
  }
}

TEST(PackedWeightsTest, OnlyWhatItCanMultiplyIsPacked) {
  if (!at::hasMKLDNN()) GTEST_SKIP() << "LibTorch without oneDNN";
  const at::Tensor weight = at::randn({4, 8});
  EXPECT_TRUE(Packed(weight).is_mkldnn());
  EXPECT_EQ(Packed(weight).sizes(), weight.sizes());
  EXPECT_TRUE(Packed(Packed(weight)).is_mkldnn());
  EXPECT_FALSE(Packed(weight.to(at::kBFloat16)).is_mkldnn());
  EXPECT_FALSE(Packed(weight.view({4, 2, 4})).is_mkldnn());
  NamedTensors weights = {{"a.weight", weight}, {"b.weight", weight}};
  PackLinears({{"a", {8, 4}}, {"absent", {8, 4}}}, weights);
  EXPECT_TRUE(weights.at("a.weight").is_mkldnn());
  EXPECT_FALSE(weights.at("b.weight").is_mkldnn());
}

}  // namespace
}  // namespace oxbow::model
