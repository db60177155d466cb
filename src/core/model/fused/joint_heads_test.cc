// SPDX-License-Identifier: Apache-2.0
#include "core/model/fused/joint_heads.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace oxbow::model::fused {
namespace {

// By PyTorch's operators.
std::vector<at::Tensor> Reference(const at::Tensor& image, const at::Tensor& context,
                                  int64_t heads) {
  const int64_t width = image.size(2) / 3;
  const auto of_image = image.split(width, 2), of_context = context.split(width, 2);
  std::vector<at::Tensor> joint;
  for (size_t p = 0; p < 3; ++p) {
    const size_t lacking = 3 - of_context.size();
    const at::Tensor part =
        p < lacking ? of_image[p] : at::cat({of_image[p], of_context[p - lacking]}, 1);
    joint.push_back(part.reshape({part.size(0), part.size(1), heads, width / heads}));
  }
  return joint;
}

TEST(JointHeadsTest, ValuesAndGradientsHaveTheBitsOfPyTorchsOperators) {
  at::manual_seed(3);
  for (const auto& [batch, tokens, prompt, heads, d] :
       {std::tuple(1, 1, 1, 1, 4), std::tuple(3, 10, 7, 4, 16), std::tuple(2, 5, 19, 2, 24)}) {
    for (const int64_t parts : {3, 2}) {
      SCOPED_TRACE(::testing::Message() << tokens << " " << parts);
      const at::Tensor image = at::randn({batch, tokens, 3 * heads * d});
      const at::Tensor context = at::randn({batch, prompt, parts * heads * d});
      std::vector<at::Tensor> results[2], gradients[2];
      for (const int ours : {0, 1}) {
        const at::Tensor x = image.clone().set_requires_grad(true);
        const at::Tensor y = context.clone().set_requires_grad(true);
        results[ours] = ours == 1 ? JointHeadsOnCpu(x, y, heads).value() : Reference(x, y, heads);
        // As attention reads them and gives gradients back: heads before tokens.
        at::Tensor sum = at::zeros({});
        for (const at::Tensor& part : results[ours]) {
          const at::Tensor by_head = part.transpose(1, 2).contiguous();
          sum = sum + (by_head * by_head).sum();
        }
        sum.backward();
        gradients[ours] = {x.grad(), y.grad()};
      }
      ASSERT_EQ(results[0].size(), results[1].size());
      for (size_t p = 0; p < 3; ++p) EXPECT_TRUE(at::equal(results[0][p], results[1][p])) << p;
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
      }
      const c10::InferenceMode no_gradients;
      EXPECT_TRUE(at::equal(JointHeadsOnCpu(image, context, heads)->at(2), results[0][2]));
    }
  }
}

// A gradient that is nowhere, and one whose values are not side by side.
TEST(JointHeadsTest, GradientsMayLackAndBeSpread) {
  const at::Tensor image = at::randn({2, 3, 24}).set_requires_grad(true);
  const at::Tensor context = at::randn({2, 5, 24}).set_requires_grad(true);
  const auto joint = JointHeadsOnCpu(image, context, 2).value();
  joint[1].sum().backward();
  EXPECT_TRUE(at::equal(image.grad().narrow(2, 8, 8), at::ones({2, 3, 8})));
  EXPECT_TRUE(at::equal(image.grad().narrow(2, 0, 8), at::zeros({2, 3, 8})));
  EXPECT_TRUE(at::equal(context.grad().narrow(2, 8, 8), at::ones({2, 5, 8})));
}

TEST(JointHeadsTest, OtherTypesAndLayoutsAreLeftToPyTorch) {
  const at::Tensor x = at::ones({2, 3, 24});
  EXPECT_TRUE(JointHeadsOnCpu(x, x, 2).has_value());
  EXPECT_FALSE(JointHeadsOnCpu(x.to(at::kBFloat16), x, 2).has_value());
  EXPECT_FALSE(JointHeadsOnCpu(x, at::ones({2, 24, 3}).transpose(1, 2), 2).has_value());
}

}  // namespace
}  // namespace oxbow::model::fused
