// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "run/run_record.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

using oxbow::testing::ScopedDirectory;

TEST(RunUidTest, ADirectoryKeepsItsUidAndTwoDirectoriesDiffer) {
  const ScopedDirectory first, second;
  const std::string uid = RunUidOf(first.path(), "digits").value();
  EXPECT_EQ(uid.rfind("digits-", 0), 0u) << uid;
  EXPECT_EQ(RunUidOf(first.path(), "another name").value(), uid);
  EXPECT_NE(RunUidOf(second.path(), "digits").value(), uid);
}

TEST(RunUidTest, ARunThatGoesOnFromACheckpointElsewhereIsThatRun) {
  const ScopedDirectory lost, other;
  const std::string uid = RunUidOf(lost.path(), "digits").value();
  EXPECT_EQ(RunUidOf(other.path(), "digits", uid).value(), uid);
  EXPECT_EQ(RunUidOf(other.path(), "digits").value(), uid) << "it is durable";
  EXPECT_TRUE(absl::IsNotFound(ReadRunUid(lost.path() / "none").status()));
}

TEST(RunUidTest, AUidSaysTheNameOfItsRun) {
  const ScopedDirectory directory;
  const std::string uid = RunUidOf(directory.path(), "digits-2").value();
  EXPECT_TRUE(IsUidOf("digits-2", uid)) << uid;
  EXPECT_FALSE(IsUidOf("digits", uid)) << uid;
  EXPECT_FALSE(IsUidOf("digits-2", uid + "0"));
  EXPECT_FALSE(IsUidOf("digits", "digits-0123456789abcdeg"));
}

TEST(RunUidTest, AFileWithoutAUidIsDamage) {
  const ScopedDirectory directory;
  std::ofstream(directory.path() / "run_uid") << "\n";
  EXPECT_TRUE(absl::IsDataLoss(RunUidOf(directory.path(), "digits").status()));
}

}  // namespace
}  // namespace oxbow::run
