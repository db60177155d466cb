// SPDX-License-Identifier: Apache-2.0
#include "core/model/conditioning.h"

#include <ATen/ATen.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::model {
namespace {

using ::testing::ElementsAre;

const std::vector<ConditioningPart> kParts = {
    {"context", {kPromptLength, 3}},
    {"mask", {kPromptLength}, ConditioningPart::Values::kMask},
    {"scale", {}}};

// Row r holds r in every part.
Conditioning Rows(int64_t rows) {
  const at::Tensor number = at::arange(rows, at::kFloat);
  return {{"context", number.view({rows, 1, 1}).expand({rows, 5, 3})},
          {"mask", number.view({rows, 1}).expand({rows, 5})},
          {"scale", number}};
}

void ExpectRows(const Conditioning& conditioning, const std::vector<float>& rows) {
  ASSERT_EQ(conditioning.size(), 3u);
  for (const auto& [name, tensor] : conditioning) {
    ASSERT_EQ(tensor.size(0), static_cast<int64_t>(rows.size())) << name;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE((tensor[static_cast<int64_t>(i)] == rows[i]).all().item<bool>()) << name;
    }
  }
}

TEST(ConditioningTest, PartsSayTheirShapesForAPromptsLength) {
  EXPECT_THAT(ShapeOf(kParts[0], 2, 7), ElementsAre(2, 7, 3));
  EXPECT_THAT(ShapeOf(kParts[2], 2, 7), ElementsAre(2));
  EXPECT_EQ(ConditioningBytes(kParts, 7), 4u * (7 * 3 + 7 + 1));
  EXPECT_EQ(PromptLengthOf(kParts, Rows(2), 4), 5);
  EXPECT_EQ(PromptLengthOf(kParts, {}, 4), 4);
}

TEST(ConditioningTest, RowsOfAllPartsMoveTogether) {
  ExpectRows(NarrowRows(Rows(4), 1, 2), {1, 2});
  ExpectRows(SelectRows(Rows(4), at::tensor({3, 0, 3}, at::kLong)), {3, 0, 3});
  ExpectRows(ConcatRows({Rows(2), Rows(3)}), {0, 1, 0, 1, 2});
  ExpectRows(BroadcastRows(NarrowRows(Rows(4), 2, 1), 3), {2, 2, 2});
  EXPECT_EQ(BytesOf(BroadcastRows(Rows(2), 2)), 4u * 2 * (15 + 5 + 1));
}

TEST(ConditioningDeathTest, OtherPartsDoNotMix) {
  Conditioning fewer = Rows(1);
  fewer.erase("mask");
  EXPECT_DEATH(ConcatRows({Rows(1), fewer}), "mask");
}

}  // namespace
}  // namespace oxbow::model
