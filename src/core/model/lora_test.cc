// SPDX-License-Identifier: Apache-2.0
#include "core/model/lora.h"

#include <ATen/ATen.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LinearModules kModules = {{"transformer_blocks.0.attn.to_k", {}},
                                {"transformer_blocks.0.attn.to_q", {}},
                                {"transformer_blocks.0.attn2.to_k", {}},
                                {"transformer_blocks.0.ff.net.2", {}},
                                {"proj_out", {}},
                                {"transformer_blocks.0.xattn.to_q", {}}};

TEST(LoraTargetsTest, ATargetIsAWholeNameOrItsLastParts) {
  EXPECT_THAT(*MatchLoraTargets(kModules, {"attn.to_k"}),
              ElementsAre("transformer_blocks.0.attn.to_k"));
  EXPECT_THAT(*MatchLoraTargets(kModules, {"attn.to_q"}),
              ElementsAre("transformer_blocks.0.attn.to_q"));
  EXPECT_THAT(
      *MatchLoraTargets(kModules, {"to_k", "proj_out", "attn.to_k"}),
      ElementsAre("proj_out", "transformer_blocks.0.attn.to_k", "transformer_blocks.0.attn2.to_k"));
}

TEST(LoraTargetsTest, ATargetThatMatchesNothingNamesTheNearestOne) {
  for (const auto& [target, nearest] :
       std::vector<std::pair<const char*, const char*>>{{"attn.to_kk", "`attn.to_k`"},
                                                        {"ff.net.0", "`ff.net.2`"},
                                                        {"ttn.to_q", "`attn.to_q`"}}) {
    const auto status = MatchLoraTargets(kModules, {"to_q", target}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(target), HasSubstr(nearest)));
  }
  EXPECT_EQ(MatchLoraTargets(kModules, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

// Promise: An adapter of any tool is what that tool says.
TEST(CompletedAdapterTest, WhatIsMissingIsFreshAndAddsNothing) {
  const LinearModules modules = {{"a", {3, 2}}, {"b", {3, 2}}};
  const NamedTensors fresh =
      *InitialLora(modules, {.rank = 4, .alpha = 4, .targets = {"a", "b"}}, 1);
  const NamedTensors own = {{"a.lora_A.weight", at::ones({1, 3})},
                            {"a.lora_B.weight", at::ones({2, 1})}};
  const NamedTensors whole = CompletedAdapter(fresh, own);
  ASSERT_EQ(whole.size(), 4u);
  const at::Tensor& a = whole.at("a.lora_A.weight");
  EXPECT_TRUE(at::equal(a.slice(0, 1), fresh.at("a.lora_A.weight").slice(0, 1)));
  EXPECT_TRUE(at::equal(at::mm(whole.at("a.lora_B.weight"), a), at::ones({2, 3})));
  EXPECT_TRUE(at::equal(whole.at("b.lora_A.weight"), fresh.at("b.lora_A.weight")));
  EXPECT_EQ(whole.at("b.lora_B.weight").count_nonzero().item<int64_t>(), 0);
}

}  // namespace
}  // namespace oxbow::model
