// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/parallel/ranks.h"
#include "tests/testing/forked_ranks.h"

namespace oxbow::parallel {
namespace {

using ::testing::Each;

TEST(ParameterAgreementTest, OneBitOnOneRankIsNamed) {
  const auto body = [](Ranks& ranks) {
    std::map<std::string, at::Tensor> tensors = {{"a.weight", at::ones({300, 7}, at::kFloat)},
                                                 {"b.weight", at::zeros({5}, at::kFloat)},
                                                 {"c.weight", at::ones({2}, at::kBFloat16)}};
    EXPECT_EQ(CheckAgreement(ranks, tensors), absl::OkStatus());
    if (ranks.rank() == 2) tensors["b.weight"][3] = -0.f;  // Equal as a number.
    if (ranks.rank() == 1) tensors["c.weight"][0] = 2;
    const absl::Status status = CheckAgreement(ranks, tensors);
    EXPECT_EQ(status, absl::DataLossError("ranks hold different tensors: b.weight: rank 2 differs "
                                          "from rank 0"));
    tensors["b.weight"].zero_();
    if (ranks.rank() == 0) tensors.erase("b.weight");
    EXPECT_EQ(CheckAgreement(ranks, tensors),
              absl::DataLossError("ranks hold different tensors: b.weight: ranks 1, 2 differ from "
                                  "rank 0"));
  };
  EXPECT_THAT(RunRanks(3, {}, body), Each(0));
}

}  // namespace
}  // namespace oxbow::parallel
