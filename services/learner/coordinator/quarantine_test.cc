// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "services/learner/coordinator/lease_events.h"

namespace oxbow::learner {
namespace {

v1::Prompt PromptOf(uint64_t id) {
  v1::Prompt prompt;
  prompt.set_id(id);
  prompt.set_text("text");
  return prompt;
}

// Promise: An image that cannot be scored does not stop a run.
TEST(QuarantineTest, APromptEntersAfterFailuresOfOneGroupAndLeavesWhenAGroupIsScored) {
  Quarantine quarantine;
  EXPECT_FALSE(quarantine.Failed(GroupId(1), LearnerStep(0), PromptOf(7), "why"));
  EXPECT_FALSE(quarantine.Failed(GroupId(2), LearnerStep(0), PromptOf(7), "why"))
      << "another group";
  EXPECT_FALSE(quarantine.Holds(PromptId(7)));
  EXPECT_TRUE(quarantine.Failed(GroupId(1), LearnerStep(0), PromptOf(7), "why"));
  EXPECT_FALSE(quarantine.Failed(GroupId(2), LearnerStep(0), PromptOf(7), "why")) << "it is in";
  EXPECT_TRUE(quarantine.Holds(PromptId(7)));
  EXPECT_FALSE(quarantine.Holds(PromptId(8)));
  quarantine.Scored(PromptId(7));
  EXPECT_FALSE(quarantine.Holds(PromptId(7)));
}

TEST(QuarantineTest, FailuresOfGroupsThatAreDoneAreForgottenAndPromptsAreNot) {
  Quarantine quarantine;
  for (int i = 0; i < 2; ++i) quarantine.Failed(GroupId(3), LearnerStep(1), PromptOf(7), "why");
  quarantine.Failed(GroupId(4), LearnerStep(1), PromptOf(8), "why");
  quarantine.Forget(GroupId(4));
  EXPECT_EQ(quarantine.failures(GroupId(3)), 0);
  EXPECT_EQ(quarantine.failures(GroupId(4)), 1);
  EXPECT_TRUE(quarantine.Holds(PromptId(7)));
}

TEST(QuarantineTest, AStatusListsManyPromptsAndCountsAll) {
  Quarantine quarantine;
  for (uint64_t id = 1; id <= Quarantine::kListed + 5; ++id) {
    for (int i = 0; i < 2; ++i) quarantine.Failed(GroupId(id), LearnerStep(3), PromptOf(id), "why");
  }
  v1::StatusResponse status;
  quarantine.FillStatus(status);
  EXPECT_EQ(status.prompts_quarantined(), Quarantine::kListed + 5);
  EXPECT_EQ(status.quarantined_size(), static_cast<int>(Quarantine::kListed));
  EXPECT_EQ(status.quarantined(0).learner_step(), 3);
}

}  // namespace
}  // namespace oxbow::learner
