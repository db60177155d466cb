// SPDX-License-Identifier: Apache-2.0
// The supervisor's decisions, on a fake clock.
#include "cli/run/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

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
    supervisor_.Started("buffer", FleetRole::kBuffer);
    supervisor_.Started("learner", FleetRole::kLearner);
    supervisor_.Started("worker", FleetRole::kWorker);
    for (const char* child : {"buffer", "learner", "worker"}) supervisor_.Ready(child);
  }
  std::vector<Action> After(absl::Duration wait) {
    clock_.Advance(wait);
    return supervisor_.Tick();
  }
  // Lets the child end with this code at once after each start, for so long. Returns how often it
  // was started.
  int Loop(const std::string& child, FleetRole role, int code, absl::Duration how_long) {
    int starts = 0;
    const absl::Duration end = clock_.Now() + how_long;
    supervisor_.Exited(child, code);
    while (clock_.Now() < end && supervisor_.phase() == Phase::kRunning) {
      for (const Action& action : After(absl::Milliseconds(100))) {
        EXPECT_EQ(action.what, Do::kStart);
        supervisor_.Started(action.child, role);
        supervisor_.Ready(action.child);
        if (action.child != child) continue;
        supervisor_.Exited(child, code);
        ++starts;
      }
    }
    return starts;
  }
  void StartAgain(const std::string& child, FleetRole role) {
    while (!supervisor_.alive(child)) {
      for (const Action& action : After(absl::Seconds(1))) supervisor_.Started(action.child, role);
    }
    supervisor_.Ready(child);
  }
  void AddWorker(const std::string& name) {
    supervisor_.Started(name, FleetRole::kWorker);
    supervisor_.Ready(name);
  }
  FakeClock clock_;
  Supervisor supervisor_{{}, clock_};
};

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, ADeadWorkerIsStartedAgainAfterABackoffThatDoubles) {
  EXPECT_THAT(supervisor_.Exited("worker", kKilled), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(199)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)), ElementsAre(Action{Do::kStart, "worker"}));
  EXPECT_THAT(After(absl::Seconds(9)), IsEmpty());
  supervisor_.Started("worker", FleetRole::kWorker);
  supervisor_.Exited("worker", 1);
  EXPECT_THAT(After(absl::Milliseconds(399)), IsEmpty());
  EXPECT_THAT(After(absl::Milliseconds(1)), ElementsAre(Action{Do::kStart, "worker"}));
  EXPECT_EQ(supervisor_.phase(), Phase::kRunning);
}

// Promise: A port that answers stays open.
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
    supervisor_.Started("worker", FleetRole::kWorker);
  }
  supervisor_.Exited("worker", 0);
  supervisor_.Exited("learner", 0);
  EXPECT_EQ(supervisor_.exit_code(), 0);
  EXPECT_EQ(supervisor_.failure(), "");
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, ADeadLearnerResumes) {
  supervisor_.Exited("learner", kKilled);
  EXPECT_THAT(After(absl::Seconds(1)), ElementsAre(Action{Do::kStart, "learner", true}));
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, TroubleOfTheOnlyOneThatMayPassEndsTheRunAfterItsPatience) {
  for (const int code :
       {int{kExitFailure}, int{kExitUnavailable}, int{kExitFull}, int{kExitDeviceLost}, kKilled}) {
    FakeClock clock;
    Supervisor supervisor({.patience = absl::Minutes(30)}, clock);
    supervisor.Started("learner", FleetRole::kLearner);
    supervisor.Committed(3);
    int deaths = 0;
    for (; supervisor.phase() == Phase::kRunning; ++deaths) {
      supervisor.Exited("learner", code);
      const absl::Duration died = clock.Now();
      while (supervisor.phase() == Phase::kRunning && !supervisor.alive("learner")) {
        clock.Advance(absl::Milliseconds(100));
        if (!supervisor.Tick().empty()) supervisor.Started("learner", FleetRole::kLearner);
      }
      EXPECT_LE(clock.Now() - died, absl::Minutes(1)) << code;
    }
    EXPECT_GE(clock.Now(), absl::Minutes(30)) << code;
    EXPECT_LE(clock.Now(), absl::Minutes(32)) << code;
    EXPECT_GE(deaths, 35) << code;
    EXPECT_EQ(supervisor.exit_code(), code == kKilled ? int{kExitFailure} : code);
    EXPECT_THAT(supervisor.failure(),
                ::testing::ContainsRegex("times in 3[01]m.* without a committed step"));
  }
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, ADiskThatIsFullForTwoMinutesEndsNothing) {
  Loop("learner", FleetRole::kLearner, kExitFull, absl::Seconds(120));
  EXPECT_THAT(supervisor_.TroubleOf("learner"),
              ::testing::ContainsRegex("^ended with exit code 5, [0-9]+ times in a row$"));
  EXPECT_LE(supervisor_.Pause("learner"), absl::Minutes(1));
  StartAgain("learner", FleetRole::kLearner);
  supervisor_.Committed(1);
  supervisor_.Exited("learner", 0);
  EXPECT_EQ(supervisor_.exit_code(), 0);
  EXPECT_EQ(supervisor_.failure(), "");
}

// Its pauses grow, though the steps of the others are committed meanwhile.
// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, AWorkerThatAlwaysDiesEndsNothingWhileAnotherLives) {
  AddWorker("other");
  EXPECT_LE(Loop("worker", FleetRole::kWorker, kKilled, absl::Seconds(120)), 10);
  int starts = 0;
  for (uint64_t minute = 1; minute <= 500; ++minute) {
    supervisor_.Committed(minute);
    for (const Action& action : After(absl::Minutes(1))) {
      ASSERT_EQ(action, (Action{Do::kStart, "worker"}));
      supervisor_.Started("worker", FleetRole::kWorker);
      supervisor_.Exited("worker", kExitDeviceLost);
      ++starts;
    }
  }
  EXPECT_LE(starts, 60) << "10 minutes apart";
  EXPECT_GE(starts, 45);
  supervisor_.Exited("learner", 0);
  EXPECT_EQ(supervisor_.exit_code(), 0);
  EXPECT_EQ(supervisor_.failure(), "");
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, AFinalCodeOfAWorkerEndsTheRunOnlyIfNoOtherHasHope) {
  for (const int code : {kExitUsage, kExitData, kExitOutOfMemory}) {
    Supervisor supervisor({}, clock_);
    supervisor.Started("learner", FleetRole::kLearner);
    for (const char* worker : {"one", "two"}) supervisor.Started(worker, FleetRole::kWorker);
    supervisor.Exited("one", code);
    supervisor.Exited("two", kKilled);  // Comes back.
    EXPECT_EQ(supervisor.phase(), Phase::kRunning) << code;
    supervisor.Started("one", FleetRole::kWorker);
    supervisor.Exited("one", code);
    supervisor.Started("two", FleetRole::kWorker);
    EXPECT_EQ(supervisor.phase(), Phase::kRunning) << code;
    supervisor.Exited("two", code);
    EXPECT_EQ(supervisor.phase(), Phase::kStopping) << code;
    EXPECT_EQ(supervisor.exit_code(), code);
  }
}

// The learner starts when each of them has been ready.
TEST_F(SupervisorTest, AFinalCodeOfARewardServerOrShardThatWasNeverReadyEndsTheRunAtOnce) {
  for (const FleetRole role : {FleetRole::kReward, FleetRole::kBuffer}) {
    Supervisor supervisor({}, clock_);
    for (const char* one : {"one", "two"}) supervisor.Started(one, role);
    supervisor.Ready("one");
    supervisor.Exited("two", kExitData);
    EXPECT_EQ(supervisor.exit_code(), kExitData);
    EXPECT_EQ(supervisor.phase(), Phase::kStopping);
  }
}

TEST_F(SupervisorTest, ASteadyLifeMakesTheNextPauseShort) {
  AddWorker("other");
  Loop("worker", FleetRole::kWorker, 1, absl::Minutes(20));
  StartAgain("worker", FleetRole::kWorker);
  clock_.Advance(absl::Minutes(2));
  supervisor_.Exited("worker", 1);
  EXPECT_THAT(After(absl::Milliseconds(200)), ElementsAre(Action{Do::kStart, "worker"}));
}

// Promise: Drained is not done.
TEST_F(SupervisorTest, ALearnerThatEndsEarlySaysHow) {
  for (const int code : {kExitStopped, kExitDrained}) {
    Supervisor supervisor({}, clock_);
    supervisor.Started("learner", FleetRole::kLearner);
    supervisor.Exited("learner", code);
    EXPECT_EQ(supervisor.exit_code(), code);
    EXPECT_EQ(supervisor.failure(), "");
    EXPECT_EQ(supervisor.phase(), Phase::kDone);
  }
}

// Promise: Drained is not done.
TEST_F(SupervisorTest, AWarningOfSlurmDrains) {
  EXPECT_THAT(supervisor_.StopRequested(SIGUSR1), ElementsAre(Action{Do::kDrain, "learner"}));
  supervisor_.Exited("learner", kExitDrained);
  EXPECT_EQ(supervisor_.exit_code(), kExitDrained);
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, ACommittedStepForgivesEarlierDeaths) {
  for (uint64_t step = 1; step <= 5; ++step) {
    supervisor_.Committed(step);
    supervisor_.Exited("worker", kKilled);
    ASSERT_THAT(After(absl::Milliseconds(200)), ElementsAre(Action{Do::kStart, "worker"}));
    supervisor_.Started("worker", FleetRole::kWorker);
  }
  EXPECT_EQ(supervisor_.phase(), Phase::kRunning);
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, ALongLifeWithoutACommittedStepForgivesNothing) {
  for (int i = 0; i < 5; ++i) {
    supervisor_.Committed(7);  // A resumed learner repeats what it had; that is no progress.
    clock_.Advance(absl::Minutes(10));
    supervisor_.Exited("learner", kExitUnavailable);
    ASSERT_EQ(supervisor_.phase(), Phase::kRunning);
    StartAgain("learner", FleetRole::kLearner);
  }
  supervisor_.Committed(6);
  clock_.Advance(absl::Minutes(10));
  supervisor_.Exited("learner", kExitUnavailable);
  EXPECT_EQ(supervisor_.phase(), Phase::kStopping);
  EXPECT_EQ(supervisor_.exit_code(), kExitUnavailable);
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, WhatTheSameStartWouldMeetAgainIsNotTriedAgain) {
  for (const int code : {kExitUsage, kExitData, kExitOutOfMemory}) {
    Supervisor supervisor({}, clock_);
    supervisor.Started("learner", FleetRole::kLearner);
    supervisor.Exited("learner", code);
    EXPECT_EQ(supervisor.phase(), Phase::kDone) << code;
    EXPECT_EQ(supervisor.exit_code(), code);
  }
}

// Promise: Any one process may die, again and again.
TEST_F(SupervisorTest, ANumberThatIsNotFiniteIsTriedAgainOnceAtAStep) {
  for (const uint64_t step : {3, 9}) {
    supervisor_.Committed(step);
    supervisor_.Exited("learner", kExitNotFinite);
    ASSERT_EQ(After(absl::Seconds(5)).size(), 1);
    supervisor_.Started("learner", FleetRole::kLearner);
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
  supervisor_.Started("worker", FleetRole::kWorker);
  EXPECT_EQ(supervisor_.Exited("learner", kExitDrained).size(), 2);
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
  supervisor.Started("buffer", FleetRole::kBuffer);
  EXPECT_THAT(supervisor.StopRequested(kInterrupt), ElementsAre(Action{Do::kTerminate, "buffer"}));
  supervisor.Exited("buffer", 0);
  EXPECT_EQ(supervisor.phase(), Phase::kDone);
  EXPECT_EQ(supervisor.exit_code(), kExitInterrupted);
}

}  // namespace
}  // namespace oxbow::cli
