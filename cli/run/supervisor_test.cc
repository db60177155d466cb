// SPDX-License-Identifier: Apache-2.0
// The supervisor's decisions, on a fake clock.
#include "cli/run/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_code.h"

namespace oxbow::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Action = Supervisor::Action;
using Do = Supervisor::Do;
using Phase = Supervisor::Phase;

constexpr int kKilled = 128 + 9;
constexpr int kInterrupt = 2;
constexpr int kTerminate = 15;

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    supervisor_.Started("buffer", Role::kBuffer);
    supervisor_.Started("learner", Role::kLearner);
    supervisor_.Started("worker", Role::kWorker);
    for (const char* child : {"buffer", "learner", "worker"}) supervisor_.Ready(child);
  }
  std::vector<Action> After(absl::Duration wait) {
    clock_.Advance(wait);
    return supervisor_.Tick();
  }
  FakeClock clock_;
  Supervisor supervisor_{{.restarts_max = 2}, clock_};
};

TEST_F(SupervisorTest, ADeadWorkerIsStartedAgainAfterABackoffThatDoubles) {
  EXPECT_THAT(supervisor_.Exited("worker", kKilled), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(199)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)), ElementsAre(Action{Do::kStart, "worker"}));
  EXPECT_THAT(After(absl::Seconds(9)), IsEmpty());
  supervisor_.Started("worker", Role::kWorker);
  supervisor_.Exited("worker", 1);
  EXPECT_THAT(After(absl::Milliseconds(399)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)), ElementsAre(Action{Do::kStart, "worker"}));
  EXPECT_EQ(supervisor_.phase(), Phase::kRunning);
}

TEST_F(SupervisorTest, AStartThatIsNotPossibleYetIsTriedAgainAndIsNoDeath) {
  supervisor_.Exited("worker", kKilled);
  EXPECT_THAT(After(absl::Milliseconds(200)), ElementsAre(Action{Do::kStart, "worker"}));
  for (int i = 0; i < 9; ++i) {
    supervisor_.StartFailed("worker");
    EXPECT_THAT(After(absl::Milliseconds(199)), IsEmpty());
    EXPECT_THAT(After(absl::Milliseconds(1)), ElementsAre(Action{Do::kStart, "worker"}));
  }
  supervisor_.StartFailed("never started");  // Its owner tries again.
  EXPECT_EQ(supervisor_.phase(), Phase::kRunning);
}

// A worker that was told of the end may be gone before the learner.
TEST_F(SupervisorTest, AWorkerThatEndedWellIsNoDeathAndComesBackIfTheRunGoesOn) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(supervisor_.Exited("worker", 0), IsEmpty());
    EXPECT_THAT(After(absl::Seconds(4)), IsEmpty());
    EXPECT_THAT(After(absl::Seconds(1)), ElementsAre(Action{Do::kStart, "worker"}));
    supervisor_.Started("worker", Role::kWorker);
  }
  supervisor_.Exited("worker", 0);
  supervisor_.Exited("learner", 0);
  EXPECT_EQ(supervisor_.exit_code(), 0);
  EXPECT_EQ(supervisor_.failure(), "");
}

TEST_F(SupervisorTest, ADeadLearnerResumes) {
  supervisor_.Exited("learner", kKilled);
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre(Action{Do::kStart, "learner", true}));
}

TEST_F(SupervisorTest, TooManyDeathsInARowEndTheRunWithItsFailure) {
  for (int i = 0; i < 2; ++i) {
    supervisor_.Exited("worker", kKilled);
    ASSERT_EQ(After(absl::Seconds(5)).size(), 1);
    supervisor_.Started("worker", Role::kWorker);
  }
  EXPECT_THAT(supervisor_.Exited("worker", kKilled),
              ElementsAre(Action{Do::kTerminate, "buffer"}, Action{Do::kTerminate, "learner"}));
  EXPECT_EQ(supervisor_.failure(),
            "worker was ended by signal 9, after 2 restarts without a committed step");
  EXPECT_EQ(supervisor_.exit_code(), kExitFailure);
}

TEST_F(SupervisorTest, ACommittedStepForgivesEarlierDeaths) {
  for (uint64_t step = 1; step <= 5; ++step) {
    supervisor_.Committed(step);
    supervisor_.Exited("worker", kKilled);
    ASSERT_THAT(After(absl::Milliseconds(200)), ElementsAre(Action{Do::kStart, "worker"}));
    supervisor_.Started("worker", Role::kWorker);
  }
  EXPECT_EQ(supervisor_.phase(), Phase::kRunning);
}

TEST_F(SupervisorTest, ALongLifeWithoutACommittedStepForgivesNothing) {
  for (int i = 0; i < 2; ++i) {
    supervisor_.Committed(7);  // A resumed learner repeats what it had; that is no progress.
    clock_.Advance(absl::Minutes(10));
    supervisor_.Exited("learner", kExitUnavailable);
    ASSERT_EQ(After(absl::Seconds(5)).size(), 1);
    supervisor_.Started("learner", Role::kLearner);
  }
  supervisor_.Committed(6);
  clock_.Advance(absl::Minutes(10));
  supervisor_.Exited("learner", kExitUnavailable);
  EXPECT_EQ(supervisor_.phase(), Phase::kStopping);
  EXPECT_EQ(supervisor_.exit_code(), kExitUnavailable);
}

TEST_F(SupervisorTest, WhatTheSameStartWouldMeetAgainIsNotTriedAgain) {
  for (const int code : {kExitUsage, kExitData, kExitOutOfMemory}) {
    Supervisor supervisor({}, clock_);
    supervisor.Started("learner", Role::kLearner);
    supervisor.Exited("learner", code);
    EXPECT_EQ(supervisor.phase(), Phase::kDone) << code;
    EXPECT_EQ(supervisor.exit_code(), code);
  }
}

TEST_F(SupervisorTest, AFullDiskMayHaveRoomAgain) {
  supervisor_.Exited("learner", kExitFull);
  EXPECT_EQ(After(absl::Seconds(5)).size(), 1);
  EXPECT_EQ(supervisor_.phase(), Phase::kRunning);
}

TEST_F(SupervisorTest, ANumberThatIsNotFiniteIsTriedAgainOnceAtAStep) {
  for (const uint64_t step : {3, 9}) {
    supervisor_.Committed(step);
    supervisor_.Exited("learner", kExitNotFinite);
    ASSERT_EQ(After(absl::Seconds(5)).size(), 1);
    supervisor_.Started("learner", Role::kLearner);
  }
  supervisor_.Exited("learner", kExitNotFinite);
  EXPECT_EQ(supervisor_.phase(), Phase::kStopping);
  EXPECT_EQ(supervisor_.exit_code(), kExitNotFinite);
}

TEST_F(SupervisorTest, BadConfigIsNotTriedAgain) {
  supervisor_.Exited("learner", kExitData);
  EXPECT_EQ(supervisor_.phase(), Phase::kStopping);
  EXPECT_EQ(supervisor_.exit_code(), kExitData);
  EXPECT_EQ(supervisor_.failed_child(), "learner");
}

TEST_F(SupervisorTest, TheRunEndsWellWhenTheLearnerIsDone) {
  EXPECT_THAT(supervisor_.Exited("learner", 0),
              ElementsAre(Action{Do::kTerminate, "buffer"}, Action{Do::kTerminate, "worker"}));
  supervisor_.Exited("worker", 0);
  EXPECT_EQ(supervisor_.phase(), Phase::kStopping);
  supervisor_.Exited("buffer", 0);
  EXPECT_EQ(supervisor_.phase(), Phase::kDone);
  EXPECT_EQ(supervisor_.exit_code(), 0);
  EXPECT_EQ(supervisor_.failure(), "");
}

TEST_F(SupervisorTest, AStopSignalDrainsTheLearnerAndKeepsItsWorkersAlive) {
  EXPECT_THAT(supervisor_.StopRequested(kInterrupt), ElementsAre(Action{Do::kDrain, "learner"}));
  supervisor_.Exited("worker", kKilled);
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre(Action{Do::kStart, "worker"}));
  supervisor_.Started("worker", Role::kWorker);
  EXPECT_EQ(supervisor_.Exited("learner", 0).size(), 2);
  supervisor_.Exited("worker", 0);
  supervisor_.Exited("buffer", 0);
  EXPECT_EQ(supervisor_.phase(), Phase::kDone);
  EXPECT_EQ(supervisor_.exit_code(), kExitInterrupted);
}

TEST_F(SupervisorTest, ASecondSignalKills) {
  supervisor_.StopRequested(kTerminate);
  EXPECT_EQ(supervisor_.StopRequested(kTerminate).size(), 3);
  for (const char* child : {"buffer", "learner", "worker"}) supervisor_.Exited(child, kKilled);
  EXPECT_EQ(supervisor_.phase(), Phase::kDone);
  EXPECT_EQ(supervisor_.exit_code(), kExitTerminated);
}

TEST_F(SupervisorTest, WhoIgnoresSigtermIsKilledAfterTheGrace) {
  supervisor_.Exited("learner", 0);
  supervisor_.Exited("worker", 0);
  EXPECT_THAT(After(absl::Seconds(14)), IsEmpty());
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre(Action{Do::kKill, "buffer"}));
  EXPECT_THAT(After(absl::Seconds(60)), IsEmpty());
}

TEST_F(SupervisorTest, ADrainThatNeverEndsIsAFailure) {
  supervisor_.StopRequested(kInterrupt);
  EXPECT_EQ(After(absl::Seconds(120)).size(), 3);
  EXPECT_EQ(supervisor_.exit_code(), kExitFailure);
  EXPECT_NE(supervisor_.failure(), "");
}

TEST(SupervisorStartTest, AStopBeforeTheLearnerExistsEndsTheRest) {
  FakeClock clock;
  Supervisor supervisor({}, clock);
  supervisor.Started("buffer", Role::kBuffer);
  EXPECT_THAT(supervisor.StopRequested(kInterrupt), ElementsAre(Action{Do::kTerminate, "buffer"}));
  supervisor.Exited("buffer", 0);
  EXPECT_EQ(supervisor.phase(), Phase::kDone);
  EXPECT_EQ(supervisor.exit_code(), kExitInterrupted);
}

}  // namespace
}  // namespace oxbow::cli
