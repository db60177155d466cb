// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <filesystem>

#include "gtest/gtest.h"

namespace oxbow {
namespace {

std::filesystem::path Scratch(std::string_view name) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "file_test";
  std::filesystem::create_directories(directory);
  return directory / name;
}

TEST(FileTest, ReadsBackWhatWasWritten) {
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(WriteFileAtomically(Scratch("whole"), content).ok());
  EXPECT_EQ(*ReadFile(Scratch("whole")), content);
}

TEST(FileTest, AFailedWriteLeavesTheOldFileAndNoLitter) {
  const auto missing = Scratch("missing_directory") / "file";
  EXPECT_EQ(WriteFileAtomically(missing, "x").code(), absl::StatusCode::kNotFound);
  // /dev/full gives ENOSPC on write: a full disk without filling one.
  auto full = AppendFile::Open("/dev/full");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->Append("x", false).code(), absl::StatusCode::kResourceExhausted);
}

TEST(FileTest, RefusesFilesOverTheLimit) {
  ASSERT_TRUE(WriteFileAtomically(Scratch("big"), "12345").ok());
  EXPECT_EQ(ReadFile(Scratch("big"), 4).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow
