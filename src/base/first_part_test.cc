// SPDX-License-Identifier: Apache-2.0
#include "base/first_part.h"

#include <gtest/gtest.h>

namespace oxbow {
namespace {

TEST(FirstPartTest, IsOneLineCutBetweenCharacters) {
  EXPECT_EQ(FirstPart("short", 5), "short");
  EXPECT_EQ(FirstPart("a\tb\nc\x1b[0m", 99), "a b c [0m");
  EXPECT_EQ(FirstPart("too long", 6), "too...");
  const std::string text = "ab\u00e9\u4e2d\U0001f98a, and what comes after";
  for (size_t most = 0; most <= text.size(); ++most) {
    const std::string part = FirstPart(text, most);
    EXPECT_LE(part.size(), most);
    if (most < 3 || most == text.size()) continue;
    const std::string kept = part.substr(0, part.size() - 3);
    EXPECT_EQ(text.compare(0, kept.size(), kept), 0);
    EXPECT_NE(static_cast<unsigned char>(text[kept.size()]) & 0xc0, 0x80) << most;
  }
}

TEST(FirstPartTest, BytesThatAreOfNoCharacterAreQuestionMarks) {
  EXPECT_EQ(FirstPart("a\xff"
                      "b",
                      99),
            "a?b");
  EXPECT_EQ(FirstPart("cut \xe4\xb8", 99), "cut ??");
  EXPECT_EQ(FirstPart("\xc0\x80 overlong", 99), "?? overlong");
  EXPECT_EQ(FirstPart("\xed\xa0\x80 half of a pair", 99), "??? half of a pair");
  EXPECT_EQ(FirstPart("\xf4\x90\x80\x80 beyond", 99), "???? beyond");
  EXPECT_EQ(FirstPart("\xe4\xb8\xad\xf0\x9f\xa6\x8a", 99), "\u4e2d\U0001f98a");
}

}  // namespace
}  // namespace oxbow
