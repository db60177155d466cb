// SPDX-License-Identifier: Apache-2.0
// Lines as Python's text mode cuts them, whatever the buffer cuts; damage is named with its line.
#include "io/text_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace oxbow::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path Written(const std::string& content) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) /
      absl::StrCat(::testing::UnitTest::GetInstance()->current_test_info()->name(), ".txt");
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::vector<std::string> LinesOf(const std::string& content) {
  auto lines = TextLines::Open(Written(content), 1 << 20);
  EXPECT_TRUE(lines.ok()) << lines.status();
  std::vector<std::string> all;
  for (std::string line;;) {
    const auto any = lines->Next(line);
    EXPECT_TRUE(any.ok()) << any.status();
    if (!any.ok() || !*any) break;
    all.push_back(line);
    EXPECT_TRUE(lines->place().ends_with(":" + std::to_string(all.size()))) << lines->place();
  }
  return all;
}

std::string ErrorOf(const std::string& content, uint64_t bytes_max = 1 << 20) {
  auto lines = TextLines::Open(Written(content), bytes_max);
  for (std::string line;;) {
    const auto any = lines->Next(line);
    if (!any.ok()) return std::string(any.status().message());
    if (!*any) return "";
  }
}

TEST(TextLinesTest, AnyLineEndWillDo) {
  EXPECT_THAT(LinesOf("a\nb\r\nc\rd"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(LinesOf("a\n\n\r\n\rb\n"), ElementsAre("a", "", "", "", "b"));
  EXPECT_THAT(LinesOf(""), ElementsAre());
  EXPECT_THAT(LinesOf("\n"), ElementsAre(""));
  EXPECT_THAT(LinesOf("a\xe2\x80\xa8z"), ElementsAre("a\xe2\x80\xa8z"));  // U+2028 ends no line.
}

TEST(TextLinesTest, AByteOrderMarkIsNoPartOfTheFirstLine) {
  EXPECT_THAT(LinesOf("\xef\xbb\xbf"
                      "a\n\xef\xbb\xbf"
                      "b"),
              ElementsAre("a",
                          "\xef\xbb\xbf"
                          "b"));
}

TEST(TextLinesTest, WhereTheBufferEndsDoesNotMatter) {
  // The buffer's 64 KiB end inside CRLF, after it, and inside a character, in turn.
  for (size_t length = (1 << 16) - 5; length < (1 << 16) + 3; ++length) {
    const std::string first(length, 'x');
    EXPECT_TRUE(LinesOf(first + "\r\nü\r\n") == (std::vector<std::string>{first, "ü"})) << length;
  }
}

TEST(TextLinesTest, DamageIsNamedWithItsLine) {
  EXPECT_THAT(ErrorOf("a\n\xff\xfe\n"), HasSubstr(".txt:2: not UTF-8"));
  EXPECT_THAT(ErrorOf("a\nb\n\xc3"), HasSubstr(".txt:3: not UTF-8"));
  EXPECT_THAT(ErrorOf(std::string("a\0b", 3)), HasSubstr(".txt:1: holds a zero byte"));
  EXPECT_THAT(ErrorOf("1234\n12345\n", 4), HasSubstr(".txt:2: the line is longer than 4 bytes"));
  EXPECT_EQ(ErrorOf("1234\r\n1234", 4), "");
  EXPECT_EQ(TextLines::Open("/nonexistent", 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TextLines::Open("/", 1).status().code(), absl::StatusCode::kNotFound);
}

TEST(StripSpaceTest, TakesUnicodesWhiteSpaceFromBothEndsAlone) {
  EXPECT_EQ(StripSpace(" \t\xc2\xa0"
                       "a\xe3\x80\x80"
                       "b\xe2\x80\x83\r"),
            "a\xe3\x80\x80"
            "b");
  EXPECT_EQ(StripSpace(""), "");
  EXPECT_EQ(StripSpace(" \xc2\x85 "), "");
  EXPECT_EQ(StripSpace("\xe2\x80\x8b"), "\xe2\x80\x8b") << "zero width space is no white space";
}

}  // namespace
}  // namespace oxbow::io
