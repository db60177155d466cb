// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/philox.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow {
namespace {

class LinesFromEndTest : public ::testing::Test {
 protected:
  // Reads `content` back as a file, and returns its lines in the file's order.
  std::vector<FileLine> LinesOf(const std::string& content) {
    EXPECT_TRUE(WriteFileAtomically(path_, content).ok());
    absl::StatusOr<LinesFromEnd> file = LinesFromEnd::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    std::vector<FileLine> lines;
    while (true) {
      absl::StatusOr<std::optional<FileLine>> line = file->Next();
      EXPECT_TRUE(line.ok()) << line.status();
      if (!line.ok() || !*line) return lines;
      lines.insert(lines.begin(), **std::move(line));
    }
  }

  testing::ScopedDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "lines";
};

// The law: the lines tile the file, none holds a newline, and only the last may lack its own.
TEST_F(LinesFromEndTest, LinesTileTheFileWhateverTheirLengths) {
  constexpr uint64_t kSeed = 20261122;
  RandomStream random({.seed = kSeed});
  for (int trial = 0; trial < 60; ++trial) {
    std::string content;
    const uint64_t lines = random.NextBelow(6);
    for (uint64_t i = 0; i < lines; ++i) {
      // Short ones, empty ones, and some around and over the size of a block.
      const uint64_t length = random.NextBelow(3) == 0
                                  ? 65530 + random.NextBelow(12)
                                  : random.NextBelow(4) * random.NextBelow(90000);
      content += std::string(length, static_cast<char>('a' + i)) + "\n";
    }
    if (random.NextBelow(2) == 0 && !content.empty()) content.pop_back();
    std::string joined;
    uint64_t end = 0;
    const std::vector<FileLine> read = LinesOf(content);
    for (const FileLine& line : read) {
      ASSERT_EQ(line.begin, end) << "seed " << kSeed << " trial " << trial;
      ASSERT_EQ(line.text.find('\n'), std::string::npos);
      ASSERT_TRUE(line.whole || &line == &read.back());
      joined += line.text + (line.whole ? "\n" : "");
      end = line.end;
    }
    ASSERT_EQ(joined, content) << "seed " << kSeed << " trial " << trial;
  }
}

TEST_F(LinesFromEndTest, AnEmptyFileHasNoLineAndAMissingOneIsNotFound) {
  EXPECT_TRUE(LinesOf("").empty());
  EXPECT_EQ(LinesFromEnd::Open(directory_.path() / "none").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow
