// SPDX-License-Identifier: Apache-2.0
// How a run ended comes back, needs no room of a full disk, and anything else in the file is no
// record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "run/run_record.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

using ::testing::HasSubstr;

EndRecord Full() {
  return {.end = RunEnd::kFailed,
          .step = 11,
          .exit_code = kExitFull,
          .reason = "No space left on device: \"a\"/metrics.jsonl (learner ended with exit code 5)",
          .time = absl::FromUnixSeconds(1'795'443'602)};
}

// Promise: Why a run ended is kept.
// Promise: A rule ends a run as its last step would.
TEST(EndRecordTest, ComesBackUntilTheNextStart) {
  const testing::ScopedDirectory run;
  EXPECT_FALSE(ReadEnd(run.path()).has_value());
  ASSERT_TRUE(WriteEnd(run.path(), Full()).ok());
  EXPECT_EQ(ReadEnd(run.path()), Full());
  EXPECT_EQ(CauseOf(Full()), "disk full");
  EXPECT_THAT(EndText(Full()), HasSubstr("failed at step 11: No space left on device: \"a\"/"));
  ASSERT_TRUE(ReserveEnd(run.path()).ok());
  ASSERT_TRUE(ReadEnd(run.path()).has_value());
  EXPECT_EQ(ReadEnd(run.path())->end, RunEnd::kUnsaid) << "nobody said more";
}

// The room is the file's own: no other file is made, and it has the size that it had.
// Promise: Why a run ended is kept. A run says afterwards whether it is done, was interrupted, was
// ended by a rule or has failed, and why, also on a disk that is full.
TEST(EndRecordTest, IsWrittenIntoTheRoomThatWasMadeForIt) {
  const testing::ScopedDirectory run;
  ASSERT_TRUE(ReserveEnd(run.path()).ok());
  const auto path = run.path() / "ended.json";
  const auto size = std::filesystem::file_size(path);
  std::filesystem::create_hard_link(path, run.path() / "same file");
  EndRecord long_one = Full();
  long_one.reason.append(10'000, 'x').append("\n\"\xc3\xa9");
  ASSERT_TRUE(WriteEnd(run.path(), long_one).ok());
  EXPECT_EQ(std::filesystem::file_size(path), size);
  EXPECT_EQ(*ReadFile(run.path() / "same file"), *ReadFile(path));
  EXPECT_EQ(ReadEnd(run.path())->exit_code, kExitFull);
}

TEST(EndRecordTest, ARuleOfAnOlderVersionIsReadAndForgotten) {
  const testing::ScopedDirectory run;
  const auto former = run.path() / "stopped.json";
  ASSERT_TRUE(WriteFileAtomically(former, R"({"step": 60, "reason": "a is low"})").ok());
  ASSERT_TRUE(ReadEnd(run.path()).has_value());
  EXPECT_EQ(ReadEnd(run.path())->end, RunEnd::kByRule);
  EXPECT_EQ(EndText(*ReadEnd(run.path())), "by rule at step 60: a is low");
  ASSERT_TRUE(ReserveEnd(run.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(former));
}

TEST(EndRecordTest, AFileOfAnotherKindIsNoRecord) {
  const testing::ScopedDirectory run;
  for (const char* const text :
       {"", "[]", "{}", R"({"state": "failed", "step": -1, "exit_code": 1, "reason": "a"})",
        R"({"state": 1, "step": 1, "exit_code": 1, "reason": "a"})",
        R"({"state": "done", "step": 1, "exit_code": 1})"}) {
    ASSERT_TRUE(WriteFileAtomically(run.path() / "ended.json", text).ok());
    EXPECT_FALSE(ReadEnd(run.path()).has_value()) << text;
  }
}

TEST(EndRecordTest, ATableGetsAFewWords) {
  EXPECT_EQ(CauseOf({.reason = "cannot listen: Address already in use: 127.0.0.1:7070"}),
            "port taken");
  EXPECT_EQ(CauseOf({.reason = "reward mine gave NaN"}), "reward mine gave NaN");
  EXPECT_EQ(CauseOf({.exit_code = kExitOutOfMemory, .reason = "learner: out of memory: 3 GiB"}),
            "out of memory");
  EXPECT_EQ(CauseOf({.exit_code = kExitData, .reason = "mine: ran out of memory tokens"}),
            "mine: ran out of memory tokens")
      << "a reward's own words";
  const std::string long_one(60, 'x');
  EXPECT_EQ(CauseOf({.reason = long_one}), absl::StrCat(long_one.substr(0, 37), "..."));
}

}  // namespace
}  // namespace oxbow::run
