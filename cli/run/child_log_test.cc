// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "cli/run/child_process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

// Promise: Logs of children are bounded. The log of a child of `oxbow train` that has grown to 16
// MiB is moved to `NAME.log.1` while the child goes on. Why a child ended is read from the end of
// its log. Not covered: a line that is written in the instant between the copy and the cut.
class ChildLogTest : public ::testing::Test {
 protected:
  std::filesystem::path log() const { return directory_.path() / "child.log"; }
  void Append(const std::string& text) { std::ofstream(log(), std::ios::app) << text; }
  static std::string TextOf(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  oxbow::testing::ScopedDirectory directory_;
};

TEST_F(ChildLogTest, LastWordsAreOfThisLifeAndSayWhyItEnded) {
  const auto words = [&](const std::string& life) {
    std::error_code none;
    const auto begin = std::filesystem::file_size(log(), none);
    Append(life);
    return LastWords(log(), none ? 0 : begin, "learner");
  };
  EXPECT_EQ(words("learner: no such device\nI 05:14:41.836 learner: stopping\n"),
            "learner: no such device");
  EXPECT_EQ(words(""), "") << "not those of the life before";
  EXPECT_EQ(words("E 05:14:41.836 learner: broke (a.cc:1)\nI 05:14:42.000 learner: more\n"),
            "E 05:14:41.836 learner: broke (a.cc:1)");
  EXPECT_EQ(words("terminate called\n\n"), "terminate called");
  EXPECT_EQ(words("I 05:14:43.000 learner: step committed\n"
                  "W 05:14:44.000 learner: worker is slow\n"
                  "{\"time\":\"\",\"level\":\"info\",\"event\":\"evaluated\"}\n"),
            "")
      << "it was killed: what it did before is not why";
}

// A sparse file of a terabyte would be read for an hour.
TEST_F(ChildLogTest, OnlyTheEndOfALogIsRead) {
  Append("learner: long ago\n");
  std::filesystem::resize_file(log(), uint64_t{1} << 40);
  Append("\nlearner: now\nI more\n");
  EXPECT_EQ(LastWords(log(), 0, "learner"), "learner: now");
  EXPECT_EQ(LogTail(log(), 2), "learner: now\nI more");
}

// The child has its log open all the time.
TEST_F(ChildLogTest, LogsThatAreMovedHaveEachLineOfAChildThatAppendsOnce) {
  constexpr int kLines = 2000;
  std::ofstream child(log(), std::ios::app);
  std::string all;
  int moved = 0;
  for (int i = 0; i < kLines; ++i) {
    child << "line " << i << std::endl;
    if (!MoveIfLarge(log(), 1000)) continue;
    ++moved;
    all += TextOf(FormerLog(log()));
    EXPECT_EQ(TextOf(log()), "");
  }
  all += TextOf(log());
  EXPECT_GE(moved, 10);
  std::string expected;
  for (int i = 0; i < kLines; ++i) absl::StrAppend(&expected, "line ", i, "\n");
  EXPECT_EQ(all, expected);
}

TEST_F(ChildLogTest, ASmallLogStaysAndOneThatCannotBeCopiedIsLeftAsItIs) {
  Append("one\n");
  EXPECT_FALSE(MoveIfLarge(log(), 4));
  std::filesystem::create_directories(directory_.path() / "child.log.moving/x");
  EXPECT_FALSE(MoveIfLarge(log(), 3));
  EXPECT_EQ(TextOf(log()), "one\n");
}

}  // namespace
}  // namespace oxbow::cli
