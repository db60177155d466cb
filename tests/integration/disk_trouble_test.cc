// SPDX-License-Identifier: Apache-2.0
// A disk that is full, broken or away for a while costs a run time and nothing else.
#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"
#include "tests/testing/eventually.h"
#include "tests/testing/faulty_disk.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A run whose directory, or a part of it, is on such a disk.
class DiskTroubleTest : public ::testing::TestWithParam<int> {
 protected:
  void TroubleBelow(const fs::path& part) {
    disk_ =
        FaultyDisk::Make(kDiskFaults, scratch_.path() / "fault", files_.directory() / part).value();
    for (const std::string& variable : disk_->environment()) {
      const size_t equals = variable.find('=');
      setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
      set_.insert(variable.substr(0, equals));
    }
  }
  ~DiskTroubleTest() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }

  // Settings of the run.
  std::vector<std::string> With(std::vector<std::string> overrides) const {
    overrides.push_back("run.directory=" + scratch_.path().string());
    return overrides;
  }
  std::string Log() const { return TextOf(files_.directory() / "logs/learner.log"); }
  bool AwaitInLog(TrainingRun& run, const std::string& words) const {
    return Eventually([&] {
             return Log().find(words) != std::string::npos || !run.process().running();
           }) &&
           Log().find(words) != std::string::npos;
  }
  bool WaitForStep(TrainingRun& run, int64_t step) const {
    return files_.WaitForStep(step, kRunDeadline, [&] { return run.process().running(); });
  }

  // Every step is there once, in the learner's first start.
  void ExpectWhole(int64_t steps) const {
    std::vector<int64_t> logged, frozen;
    for (const nlohmann::json& row : files_.metrics()) logged.push_back(row["step"]);
    std::istringstream lines(TextOf(files_.directory() / "steps.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(row["epoch"], 1) << line;
      frozen.push_back(row["step"]);
    }
    std::vector<int64_t> wanted;
    for (int64_t step = 0; step < steps; ++step) wanted.push_back(step);
    EXPECT_EQ(frozen, wanted);
    wanted.push_back(steps);
    EXPECT_EQ(logged, wanted);
    EXPECT_EQ(TextOf(files_.directory() / "epoch"), "1\n");
  }

  // The last words of a run that is stopped while its disk is full.
  std::string LastWordsWithoutALog(const std::function<void()>& spoil) {
    TroubleBelow("checkpoints");
    TrainingRun run(
        With({"run.steps=100000", "checkpoint.every=2", "services.patience_minutes=0.01"}));
    EXPECT_TRUE(WaitForStep(run, 1)) << run.process().error_output();
    fs::remove_all(files_.directory() / "logs");
    spoil();
    disk_->Fail(ENOSPC);
    run.process().Kill(SIGINT);
    EXPECT_EQ(run.WaitExit().value(), 5) << run.process().error_output();
    const std::string said = run.process().error_output();
    const size_t reason = said.rfind("learner ended with exit code 5: ");
    return reason == said.npos ? "none: " + said : said.substr(reason);
  }

  const ScopedDirectory scratch_;
  const RunFiles files_{scratch_.path() / "run"};
  std::unique_ptr<FaultyDisk> disk_;
  std::set<std::string> set_;
};

// Promise: A disk that fails for a while ends no run.
TEST_P(DiskTroubleTest, EndsNothingAndLosesNothing) {
  TroubleBelow({});
  TrainingRun run(With({"run.steps=8", "checkpoint.every=2", "eval.every=4"}));
  ASSERT_TRUE(WaitForStep(run, 2)) << run.process().error_output();
  disk_->Fail(GetParam());
  ASSERT_TRUE(AwaitInLog(run, "the run's disk cannot be written, it is tried again")) << Log();
  unsetenv("LD_PRELOAD");  // The run's processes have it; who asks is not on that disk.
  const Outcome status = RunOxbow({"status", "--run", files_.directory().string()});
  EXPECT_THAT(status.output, HasSubstr("disk"));
  disk_->Heal();
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  ExpectWhole(8);
  EXPECT_TRUE(fs::exists(files_.directory() / "checkpoints/step_000008"));
  EXPECT_TRUE(fs::exists(files_.directory() / "samples/step_000004/eval.png"));
}

INSTANTIATE_TEST_SUITE_P(Errors, DiskTroubleTest, ::testing::Values(ENOSPC, EIO, ESTALE));

// Promise: A disk that fails for a while ends no run.
TEST_F(DiskTroubleTest, ACheckpointThatCannotBeWrittenIsTriedAgainWhileTrainingGoesOn) {
  TroubleBelow("checkpoints");
  TrainingRun run(With({"run.steps=40", "checkpoint.every=10"}));
  disk_->Fail(ENOSPC);
  ASSERT_TRUE(AwaitInLog(run, "the checkpoint of step 10 cannot be written")) << Log();
  ASSERT_TRUE(WaitForStep(run, 11)) << run.process().error_output();
  disk_->Heal();
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(Log(), HasSubstr("checkpoints are written again"));
  EXPECT_THAT(run.process().error_output() + run.process().output(),
              HasSubstr("the checkpoint of step 10 cannot be written, the next steps try again"));
  ExpectWhole(40);
}

// Promise: A disk that fails for a while ends no run.
TEST_F(DiskTroubleTest, PatienceEnds) {
  TroubleBelow("checkpoints");
  TrainingRun run(With({"run.steps=4", "checkpoint.every=2", "services.patience_minutes=0.02"}));
  disk_->Fail(ENOSPC);
  ASSERT_EQ(run.WaitExit().value(), 5) << run.process().error_output();
  EXPECT_THAT(run.process().error_output(), HasSubstr("no checkpoint could be written, "));
}

// Promise: A disk that fails for a while ends no run.
TEST_F(DiskTroubleTest, AStopWhileTheDiskIsFullEndsWithTheCodeOfAFullDisk) {
  TroubleBelow("checkpoints");
  TrainingRun run(
      With({"run.steps=100000", "checkpoint.every=2", "services.patience_minutes=0.01"}));
  ASSERT_TRUE(WaitForStep(run, 1)) << run.process().error_output();
  disk_->Fail(ENOSPC);
  run.process().Kill(SIGINT);
  ASSERT_EQ(run.WaitExit().value(), 5) << run.process().error_output();
  EXPECT_THAT(run.process().error_output(), HasSubstr("asked to stop, and step "));
  EXPECT_THAT(TextOf(files_.directory() / "ended.json"), HasSubstr("No space left on device"));
}

// The log, where the reason would be, is on the same disk.
// Promise: A disk that fails for a while ends no run.
TEST_F(DiskTroubleTest, ARunWhoseLogCannotBeReadSaysTheReasonOfItsRecord) {
  EXPECT_THAT(LastWordsWithoutALog([] {}), HasSubstr("No space left on device"));
}

// Promise: A disk that fails for a while ends no run.
TEST_F(DiskTroubleTest, ARunThatCouldWriteNoReasonSaysWhatItsExitCodeMeans) {
  EXPECT_THAT(LastWordsWithoutALog([&] {
                fs::remove(files_.directory() / "ended.json");
                fs::create_directories(files_.directory() / "ended.json/x");
              }),
              HasSubstr("a disk, a memory or another limit is full"));
}

// How the run ended is the last that it writes.
// Promise: A disk that fails for a while ends no run.
TEST_F(DiskTroubleTest, TheLastWriteOfARunIsTriedAgain) {
  TroubleBelow("ended.json");
  TrainingRun run(With({"run.steps=12"}));
  ASSERT_TRUE(WaitForStep(run, 1)) << run.process().error_output();
  disk_->Fail(EIO);
  ASSERT_TRUE(AwaitInLog(run, "the run's disk cannot be written, it is tried again")) << Log();
  disk_->Heal();
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  ExpectWhole(12);
}

// An older checkpoint is not taken for one that cannot be read at this moment.
// Promise: A disk that fails for a while ends no run.
TEST_F(DiskTroubleTest, ADiskThatIsAwayAtAResumeIsWaitedFor) {
  {
    TrainingRun run(With({"run.steps=3", "checkpoint.every=1"}));
    ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  }
  TroubleBelow("checkpoints");
  disk_->Fail(EIO);
  TrainingRun resumed(With({"run.steps=4", "checkpoint.every=1"}), {"--resume"});
  ASSERT_TRUE(AwaitInLog(resumed, "checkpoints cannot be read, it is tried again")) << Log();
  disk_->Heal();
  ASSERT_EQ(resumed.WaitExit().value(), 0) << resumed.process().error_output();
  EXPECT_THAT(Log(), Not(HasSubstr("checkpoint is skipped")));
  std::istringstream lines(TextOf(files_.directory() / "steps.jsonl"));
  std::vector<std::pair<int64_t, int64_t>> frozen;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    frozen.emplace_back(row["epoch"], row["step"]);
  }
  EXPECT_EQ(frozen, (std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {1, 1}, {1, 2}, {2, 3}}));
}

}  // namespace
}  // namespace oxbow::testing
