// SPDX-License-Identifier: Apache-2.0
// `torchrun --no-python learner ...`: with all its starts, stops and restarts it is one
// deterministic run. The command lines are those of docs/launching.md.
#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launchers/expected_run.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

std::vector<std::string> Torchrun(const std::vector<std::string>& flags) {
  std::vector<std::string> words = {OXBOW_TORCHRUN, "--no-python", "--max-restarts", "3"};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

std::vector<std::string> OneMachine() {
  return Torchrun({"--standalone", "--nnodes", "1", "--nproc-per-node", "2"});
}

class TorchrunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(OXBOW_TORCHRUN).find("NOTFOUND") != std::string::npos) {
      GTEST_SKIP() << "torchrun is not installed (it comes with the torch wheel)";
    }
  }
};

class TorchrunRestartTest : public TorchrunTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(KilledRank, TorchrunRestartTest, ::testing::Values(0, 1));

// Rank 1 dies before the first checkpoint, rank 0 after it.
// Promise: A launcher may start the ranks. Ranks may be started by torchrun, by srun or as the pods
// of a JobSet. A killed rank ends the others. All are started again with the same command line, and
// the run ends with the same bytes.
TEST_P(TorchrunRestartTest, AKilledRankIsStartedAgainWithAllAndChangesNoBit) {
  LaunchedRun run(SmallDeterministicRun());
  run.Work(run.Launch({.launcher = OneMachine()}));
  ASSERT_TRUE(run.WaitForStep(GetParam() == 1 ? 1 : 3));
  ASSERT_TRUE(run.KillRank(GetParam()));
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

// SIGTERM goes to all ranks; rank 0 finishes its step with them, writes a checkpoint and releases
// them.
// Promise: A launcher may start the ranks.
TEST_F(TorchrunTest, SigtermDrainsAllRanksAndAnotherLaunchGoesOn) {
  LaunchedRun run(SmallDeterministicRun());
  Process& first = run.Launch({.launcher = OneMachine()});
  run.Work(first);
  ASSERT_TRUE(run.WaitForStep(3));
  first.Kill(SIGTERM);
  EXPECT_THAT(run.WaitExit(), SizeIs(1));
  const size_t committed = run.files().Series("train/loss").size();
  EXPECT_TRUE(std::filesystem::exists(run.files().directory() / "checkpoints" /
                                      ("step_00000" + std::to_string(committed))));
  run.Launch({.launcher = OneMachine()});
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

// Two agents, as on two machines. The agent whose rank dies counts a restart, the other does not.
// Promise: A launcher may start the ranks.
TEST_F(TorchrunTest, AgentsThatCountRestartsApartMeetAgain) {
  LaunchedRun run(SmallDeterministicRun());
  const std::vector<std::string> words = Torchrun(
      {"--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "launchers_test", "--rdzv-backend",
       "c10d", "--rdzv-endpoint", "localhost:" + std::to_string(FreePort())});
  Process& one = run.Launch({.launcher = words});
  run.Launch({.launcher = words, .any_port = true});
  run.Work(one);
  ASSERT_TRUE(run.WaitForStep(3));
  ASSERT_TRUE(run.KillRank(1));
  EXPECT_THAT(run.WaitExit(), Each(0));
  ExpectTheSameBits(run);
}

}  // namespace
}  // namespace oxbow::testing
