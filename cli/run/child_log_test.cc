// SPDX-License-Identifier: Apache-2.0
#include "cli/run/child_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

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
}

// A sparse file of a terabyte would be read for an hour.
TEST_F(ChildLogTest, OnlyTheEndOfALogIsRead) {
  Append("learner: long ago\n");
  std::filesystem::resize_file(log(), uint64_t{1} << 40);
  Append("\nlearner: now\nI more\n");
  EXPECT_EQ(LastWords(log(), 0, "learner"), "learner: now");
  EXPECT_EQ(LogTail(log(), 2), "learner: now\nI more");
}

TEST_F(ChildLogTest, ALogThatIsMovedLosesNoLineOfOneThatAppends) {
  constexpr int kLines = 20'000;
  std::atomic<bool> done = false;
  std::thread child([&] {
    std::ofstream out(log(), std::ios::app);
    for (int i = 0; i < kLines; ++i) {
      out << "line " << i << std::endl;
      if (i % 100 == 0) poll(nullptr, 0, 1);
    }
    done = true;
  });
  std::string all;
  int moved = 0;
  while (!done) {
    if (!MoveIfLarge(log(), 10'000)) continue;
    ++moved;
    all += TextOf(FormerLog(log()));
    EXPECT_LE(std::filesystem::file_size(log()), 100'000u);
  }
  child.join();
  all += TextOf(log());
  EXPECT_GE(moved, 3);
  std::vector<std::string> lines = absl::StrSplit(all, '\n', absl::SkipEmpty());
  // A line that is written between the copy and the end of the old one may be lost, as said.
  EXPECT_GE(lines.size(), static_cast<size_t>(kLines - moved * 5));
  EXPECT_EQ(lines.front(), "line 0");
  EXPECT_EQ(lines.back(), absl::StrCat("line ", kLines - 1));
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
