// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "services/learner/coordinator/group_check.h"

namespace oxbow::learner {
namespace {

TEST(PublishedVersionsTest, AVersionServesTheStepsWithinTheStalenessBudget) {
  PublishedVersions published(/*staleness_max=*/1);
  EXPECT_FALSE(published.Serves(PolicyVersion(0), LearnerStep(0))) << "nothing is published";
  EXPECT_EQ(published.OldestFor(LearnerStep(0)), PolicyVersion(0));
  published.Add(PolicyVersion(0), LearnerStep(0));
  published.Add(PolicyVersion(6), LearnerStep(3));
  EXPECT_TRUE(published.Serves(PolicyVersion(0), LearnerStep(1)));
  EXPECT_FALSE(published.Serves(PolicyVersion(0), LearnerStep(2)));
  EXPECT_TRUE(published.Serves(PolicyVersion(6), LearnerStep(4)));
  EXPECT_FALSE(published.Serves(PolicyVersion(5), LearnerStep(1))) << "was never published";
  EXPECT_EQ(published.OldestFor(LearnerStep(1)), PolicyVersion(0));
  EXPECT_EQ(published.OldestFor(LearnerStep(4)), PolicyVersion(6));
  EXPECT_EQ(published.OldestFor(LearnerStep(9)), PolicyVersion(6)) << "the newest there is";
}

TEST(PublishedVersionsTest, VersionsThatNoWantedResultCanHaveAreForgotten) {
  PublishedVersions published(/*staleness_max=*/1);
  for (uint64_t v = 0; v < 20; ++v) published.Add(PolicyVersion(v), LearnerStep(v));
  EXPECT_EQ(published.newest(), PolicyVersion(19));
  EXPECT_EQ(published.StepOf(PolicyVersion(15)), LearnerStep(15));
  EXPECT_FALSE(published.StepOf(PolicyVersion(14)).has_value());
}

}  // namespace
}  // namespace oxbow::learner
