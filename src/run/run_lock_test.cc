// SPDX-License-Identifier: Apache-2.0
#include "run/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "tests/testing/scoped_directory.h"
#include "tests/testing/wall_clock_stepped.h"

namespace oxbow::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int NoLocks(int, int) {
  errno = ENOLCK;
  return -1;
}

// Each try sets the wall clock of this executable back, as far as a wait of some seconds notices.
int HeldWhileTheClockGoesBack(int, int) {
  oxbow_wall_clock_ahead -= 3600;
  errno = EWOULDBLOCK;
  return -1;
}

class RunLockTest : public ::testing::Test {
 protected:
  absl::StatusOr<RunLock> Take(int (*lock)(int, int) = ::flock) {
    return RunLock::Take(scratch_.path(), {.program = "oxbow train", .lock = lock});
  }
  std::filesystem::path file() const { return scratch_.path() / "LOCK"; }
  // Leaves the record of another process, as it would be written without a lock.
  void LeaveRecord(pid_t pid, const std::string& host) {
    std::string record = absl::StrCat("{\"program\":\"oxbow train\",\"pid\":", pid, ",\"host\":\"",
                                      host, "\",\"process_start\":7,\"start\":4}");
    record.resize(512, ' ');
    std::ofstream(file()) << record;
  }

  testing::ScopedDirectory scratch_;
};

// Promise: One process changes a run's directory.
TEST_F(RunLockTest, IsHeldOnceAndNamesItsHolder) {
  const auto first = Take();
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Take();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("the run is live: oxbow train, process "),
                    HasSubstr(absl::StrCat("kill ", getpid(), " on ", HostName())),
                    HasSubstr(scratch_.path().string())));
  EXPECT_TRUE(first->CheckHeld().ok()) << "a refused start changed the record";
}

TEST_F(RunLockTest, ARunIsLiveWhileEitherPartIsHeld) {
  EXPECT_FALSE(IsLive(scratch_.path()));
  for (const auto part : {RunLock::Part::kRun, RunLock::Part::kLearner}) {
    {
      const auto lock = RunLock::Take(scratch_.path(), {.part = part});
      EXPECT_TRUE(IsLive(scratch_.path()));
      EXPECT_TRUE(IsLive(scratch_.path())) << "asking changes nothing";
    }
    EXPECT_FALSE(IsLive(scratch_.path()));
  }
}

TEST_F(RunLockTest, PartsAreLockedApart) {
  const auto run = Take();
  const auto learner = RunLock::Take(scratch_.path(), {.part = RunLock::Part::kLearner});
  EXPECT_TRUE(run.ok() && learner.ok());
}

TEST_F(RunLockTest, AFileThatIsLeftLocksNothingAndStartsAreCounted) {
  for (uint64_t start = 1; start <= 3; ++start) {
    const auto lock = Take();
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(lock->start(), start);
  }
  std::ofstream(file()) << "damaged";
  EXPECT_TRUE(Take().ok());
}

TEST_F(RunLockTest, WaitsForAHolderThatIsAboutToEnd) {
  auto holder = Take();
  ASSERT_TRUE(holder.ok());
  std::thread end([&] { holder = absl::CancelledError("ended"); });
  const auto lock = RunLock::Take(scratch_.path(), {.wait = absl::Seconds(30)});
  end.join();
  EXPECT_TRUE(lock.ok()) << lock.status();
}

TEST_F(RunLockTest, ADirectoryThatIsGoneOrRenamedEndsItsHolder) {
  const std::filesystem::path run = scratch_.path() / "run";
  std::filesystem::create_directory(run);
  const auto lock = RunLock::Take(run, {.program = "oxbow train"});
  std::filesystem::rename(run, scratch_.path() / "run.1");
  EXPECT_EQ(lock->CheckHeld().code(), absl::StatusCode::kFailedPrecondition);
}

// Promise: One process changes a run's directory.
TEST_F(RunLockTest, WithoutLocksTheNewerStartGoesOnAndTheOlderEnds) {
  LeaveRecord(getpid(), "another-machine");
  const auto older = Take(NoLocks);
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->start(), 5u);
  EXPECT_TRUE(older->CheckHeld().ok());
  LeaveRecord(12, "another-machine");
  const auto newer = Take(NoLocks);
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_TRUE(newer->CheckHeld().ok());
  EXPECT_EQ(older->CheckHeld().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(older->CheckHeld().message()),
      AllOf(HasSubstr("taken over by oxbow train, process "), HasSubstr("this process ends")));
}

TEST_F(RunLockTest, WithoutLocksALiveProcessOfThisMachineIsRespected) {
  const auto first = Take(NoLocks);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Take(NoLocks).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(first->CheckHeld().ok());
  // The pid is in use again: the process that held the lock started at another time.
  LeaveRecord(getpid(), HostName());
  EXPECT_TRUE(Take(NoLocks).ok());
}

// `oxbow train` looks at the learner's lock before it starts a learner, and lives on beside it.
// Promise: One process changes a run's directory.
TEST_F(RunLockTest, WithoutLocksWhatWasReleasedIsFreeThoughItsHolderLives) {
  for (uint64_t start = 1; start <= 3; ++start) {
    const auto lock = Take(NoLocks);
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(lock->start(), start);
    EXPECT_FALSE(Take(NoLocks).ok()) << "held";
  }
}

// Abseil's clock follows the system's within two seconds.
// Promise: A stalled worker delays nobody.
TEST_F(RunLockTest, AWaitEndsThoughTheWallClockIsSetBack) {
  const auto lock =
      RunLock::Take(scratch_.path(), {.wait = absl::Seconds(4), .lock = HeldWhileTheClockGoesBack});
  oxbow_wall_clock_ahead = 0;
  EXPECT_EQ(lock.status().code(), absl::StatusCode::kUnavailable) << lock.status();
}

}  // namespace
}  // namespace oxbow::run
