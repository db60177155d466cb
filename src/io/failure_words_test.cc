// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/file.h"
#include "io/evaluation_file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::io {
namespace {

TEST(FailureWordsTest, TheLastFailedEvaluationIsFoundAmongPictures) {
  const testing::ScopedDirectory run;
  EXPECT_FALSE(LastEvaluationFailure(run.path()).has_value());
  ASSERT_TRUE(WriteEvaluationFailure(run.path(), {.step = 9, .reason = "no face"}).ok());
  ASSERT_TRUE(WriteEvaluationFailure(run.path(), {.step = 1000000,
                                                  .reason = "\xff \"no\"\nface",
                                                  .missed = {"run.stop_if", "checkpoint.best"}})
                  .ok());
  std::filesystem::create_directories(run.path() / "samples" / "step_2000000");
  std::filesystem::create_directories(run.path() / "samples" / "other");
  const auto last = LastEvaluationFailure(run.path());
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->step, 1000000);
  EXPECT_EQ(FailureText(*last),
            "\xef\xbf\xbd \"no\"\nface; no number for run.stop_if, checkpoint.best");
  EXPECT_EQ(FailureText(*EvaluationFailureAt(run.path(), 9)), "no face");
  EXPECT_FALSE(EvaluationFailureAt(run.path(), 10).has_value());
  for (const char* broken : {"", "[]", "{\"reason\":3}", "{\"reason\":\"x\",\"missed\":3}"}) {
    ASSERT_TRUE(
        WriteFileAtomically(run.path() / "samples" / "step_000009" / "failed.json", broken).ok());
    EvaluationFailureAt(run.path(), 9);
  }
}

TEST(FailureWordsTest, TheReasonOfUnscoredSamplesIsTheLastOne) {
  const testing::ScopedDirectory run;
  EXPECT_EQ(ReadUnscoredReason(run.path()), "");
  ASSERT_TRUE(WriteUnscoredReason(run.path(), "no").ok());
  ASSERT_TRUE(WriteUnscoredReason(run.path(), "no face").ok());
  EXPECT_EQ(ReadUnscoredReason(run.path()), "no face");
  RemoveUnscoredReason(run.path());
  EXPECT_EQ(ReadUnscoredReason(run.path()), "");
}

}  // namespace
}  // namespace oxbow::io
