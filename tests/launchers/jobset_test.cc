// SPDX-License-Identifier: Apache-2.0
// The environment that a JobSet gives its pods, set by hand: one rank per pod; all are restarted
// when one fails.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launchers/expected_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// The environment of docs/launching.md. Here the pods share a machine, which LOCAL_RANK indicates.
std::vector<std::string> Pod(int index, int attempt, int port) {
  return {"MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=" + std::to_string(port),
          "WORLD_SIZE=2",
          "JOB_COMPLETION_INDEX=" + std::to_string(index),
          "LOCAL_RANK=" + std::to_string(index),
          "JOBSET_RESTART_ATTEMPT=" + std::to_string(attempt)};
}

// Promise: A launcher may start the ranks.
TEST(JobSetTest, AKilledPodEndsTheOthersAndTheNextAttemptChangesNoBit) {
  LaunchedRun run(SmallDeterministicRun());
  const int port = FreePort();
  Process& leader = run.Launch({.environment = Pod(0, 0, port)});
  run.Launch({.environment = Pod(1, 0, port)});
  run.Work(leader);
  ASSERT_TRUE(run.WaitForStep(3));
  ASSERT_TRUE(run.KillRank(1));
  EXPECT_THAT(run.WaitExit(), ElementsAre(3, -SIGKILL));
  run.Launch({.environment = Pod(0, 1, port)});
  run.Launch({.environment = Pod(1, 1, port)});
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

}  // namespace
}  // namespace oxbow::testing
