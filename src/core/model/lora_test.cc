// SPDX-License-Identifier: Apache-2.0
#include "core/model/lora.h"

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

}  // namespace
}  // namespace oxbow::model
