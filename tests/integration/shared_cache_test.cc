// SPDX-License-Identifier: Apache-2.0
// Encoders of several containers fill one cache at the same time. Each container counts processes
// from 1, so they have equal ids.
#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 5;

// Files below `directory`, and how many of them are temporary.
std::pair<int, int> FilesIn(const fs::path& directory) {
  std::pair<int, int> count;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    ++count.first;
    count.second += entry.path().string().find(".tmp.") != std::string::npos ? 1 : 0;
  }
  return count;
}

// Promise: Files are written whole, by any number of writers.
TEST(SharedCacheTest, TwoEncodersWithOneProcessIdBothEndWell) {
  if (std::system("unshare --pid --fork true 2> /dev/null") != 0) {
    GTEST_SKIP() << "no right to make a namespace of processes";
  }
  const std::string source = OXBOW_SOURCE_DIR;
  for (int round = 0; round < kRounds; ++round) {
    const ScopedDirectory cache;
    const std::vector<std::string> argv = {"/usr/bin/unshare",
                                           "--pid",
                                           "--fork",
                                           "--kill-child",
                                           BinaryPath("oxbow"),
                                           "encode",
                                           "--model",
                                           source + "/models/digits",
                                           "--prompts",
                                           source + "/configs/prompts/digits_eval.txt",
                                           "--cache",
                                           cache.path().string()};
    const auto one = Process::Start({.argv = argv}).value();
    const auto other = Process::Start({.argv = argv}).value();
    EXPECT_EQ(one->WaitExit(absl::Seconds(120)).value(), 0) << one->error_output();
    EXPECT_EQ(other->WaitExit(absl::Seconds(120)).value(), 0) << other->error_output();
    const auto [files, temporary] = FilesIn(cache.path());
    EXPECT_GT(files, 10);
    EXPECT_EQ(temporary, 0);
    // All files that are there are whole.
    const auto third = Process::Start({.argv = argv}).value();
    EXPECT_EQ(third->WaitExit(absl::Seconds(120)).value(), 0) << third->error_output();
    EXPECT_THAT(third->output(), ::testing::HasSubstr("encoded 0 prompts"));
  }
}

}  // namespace
}  // namespace oxbow::testing
