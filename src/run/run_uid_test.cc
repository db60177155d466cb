// SPDX-License-Identifier: Apache-2.0
#include "run/run_uid.h"

#include <gtest/gtest.h>

#include <fstream>

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

TEST(RunUidTest, AFileWithoutAUidIsDamage) {
  const ScopedDirectory directory;
  std::ofstream(directory.path() / "run_uid") << "\n";
  EXPECT_TRUE(absl::IsDataLoss(RunUidOf(directory.path(), "digits").status()));
}

}  // namespace
}  // namespace oxbow::run
