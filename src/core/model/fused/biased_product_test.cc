// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/biased_product.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <tuple>

namespace oxbow::model::fused {
namespace {

at::Tensor Leaf(const at::Tensor& x, bool trains) { return x.clone().set_requires_grad(trains); }

// Ratios of policies are 1 to the bit because every path of a layer has the same ones.
TEST(BiasedProductTest, ValuesAndGradientsHaveTheBitsOfAddmm) {
  at::manual_seed(7);
  for (const auto& [rows, in, out] : {std::tuple(16, 5, 3), std::tuple(64, 64, 192),
                                      std::tuple(640, 256, 64), std::tuple(100, 64, 1)}) {
    for (const bool frozen : {false, true}) {
      SCOPED_TRACE(::testing::Message() << rows << " " << in << " " << out << " " << frozen);
      const at::Tensor x = at::randn({rows, in}), w = at::randn({out, in}), b = at::randn({out});
      const at::Tensor direction = at::randn({rows, out});
      at::Tensor gradients[2][3];
      at::Tensor results[2];
      for (const int ours : {0, 1}) {
        const at::Tensor leaves[3] = {Leaf(x, true), Leaf(w, !frozen), Leaf(b, !frozen)};
        results[ours] = ours == 1 ? BiasedProductOnCpu(leaves[0], leaves[1], leaves[2]).value()
                                  : at::addmm(leaves[2], leaves[0], leaves[1].t());
        results[ours].backward(direction);
        for (int i = 0; i < 3; ++i) gradients[ours][i] = leaves[i].grad();
      }
      EXPECT_TRUE(at::equal(results[0], results[1]));
      for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(gradients[0][i].defined(), gradients[1][i].defined()) << i;
        if (!gradients[0][i].defined()) continue;
        EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
      }
      const c10::InferenceMode no_gradients;
      EXPECT_TRUE(at::equal(BiasedProductOnCpu(x, w, b).value(), results[0]));
    }
  }
}

TEST(BiasedProductTest, OtherTypesAndABiasWithGapsAreLeftToPyTorch) {
  const at::Tensor x = at::ones({16, 4}), w = at::ones({6, 4}), b = at::ones({6});
  EXPECT_TRUE(BiasedProductOnCpu(x, w, b).has_value());
  EXPECT_FALSE(BiasedProductOnCpu(x, w, at::ones({6, 2}).select(1, 0)).has_value());
  EXPECT_FALSE(BiasedProductOnCpu(x, w.to(at::kBFloat16), b).has_value());
  EXPECT_FALSE(BiasedProductOnCpu(x.to(at::kDouble), w.to(at::kDouble), b.to(at::kDouble)));
}

}  // namespace
}  // namespace oxbow::model::fused
