// SPDX-License-Identifier: Apache-2.0
// `srun learner ...` in a temporary Slurm cluster of one node. Skipped without Slurm, or without
// root, which its daemons need.
#include <signal.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launchers/expected_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;

std::vector<std::string> InACluster(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  all.push_back(absl::StrCat(OXBOW_SOURCE_DIR, "/tests/launchers/slurm_one_node.sh"));
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

class SrunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/munged"}) {
      if (access(program, X_OK) != 0) {
        GTEST_SKIP() << "Slurm is not installed (apt install slurm-wlm munge): " << program;
      }
    }
    if (geteuid() != 0) GTEST_SKIP() << "only root can start Slurm's daemons";
  }
};

TEST_F(SrunTest, TwoTasksAreTwoRanks) {
  LaunchedRun run(SmallDeterministicRun());
  run.Work(run.Launch({.launcher = InACluster({"srun", "--ntasks", "2", "--kill-on-bad-exit=0"})}));
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

// As docs/launching.md's batch script does: srun itself restarts nothing.
// Promise: A launcher may start the ranks.
TEST_F(SrunTest, AKilledTaskEndsTheStepAndTheNextOneGoesOn) {
  LaunchedRun run(SmallDeterministicRun());
  const std::string loop =
      "for attempt in 1 2 3; do srun --ntasks 2 --kill-on-bad-exit=0 \"$@\"; code=$?; case $code "
      "in "
      "0 | 9) exit $code ;; esac; done; exit 1";
  run.Work(run.Launch({.launcher = InACluster({"bash", "-c", loop, "batch"})}));
  ASSERT_TRUE(run.WaitForStep(3));
  ASSERT_TRUE(run.KillRank(1));
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

TEST_F(SrunTest, ASignalToOneTaskDrainsAllAndIsNoSuccess) {
  LaunchedRun run(SmallDeterministicRun());
  const auto step = InACluster({"srun", "--ntasks", "2", "--kill-on-bad-exit=0"});
  run.Work(run.Launch({.launcher = step}));
  ASSERT_TRUE(run.WaitForStep(3));
  ASSERT_TRUE(run.KillRank(1, SIGUSR1));
  EXPECT_THAT(run.WaitExit(), Each(kExitDrained));
  run.Launch({.launcher = step});
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

}  // namespace
}  // namespace oxbow::testing
