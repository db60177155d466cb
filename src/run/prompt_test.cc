// SPDX-License-Identifier: Apache-2.0
#include "run/prompt.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace oxbow::run {
namespace {

TEST(PromptTest, TheIdDependsOnTextAndMetadata) {
  EXPECT_EQ(PromptIdOf("text 473", "{}"), Fingerprint64("text 473\n{}"));
  EXPECT_NE(PromptIdOf("text 473", "{}"), PromptIdOf("text 473", ""));
  EXPECT_EQ(MakePrompt("text 473", "{}").id(), PromptIdOf("text 473", "{}"));
}

}  // namespace
}  // namespace oxbow::run
