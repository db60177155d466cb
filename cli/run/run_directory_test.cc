// SPDX-License-Identifier: Apache-2.0
// The effect of a start of `oxbow train` on a directory; a refused start leaves it as it was.
#include "cli/run/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "run/run_record.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

config::ResolvedConfig Resolved(const std::vector<std::string>& overrides = {}) {
  auto resolved = config::LoadRunConfig({}, overrides, {});
  OXBOW_CHECK(resolved.ok()) << resolved.status();
  return *std::move(resolved);
}

class RunDirectoryTest : public ::testing::Test {
 protected:
  absl::StatusOr<EnteredDirectory> Enter(EarlierRun earlier,
                                         const std::vector<std::string>& overrides = {}) {
    return EnterRunDirectory(run_, earlier, Resolved(overrides));
  }
  // A run that ended after `steps` steps.
  void LeaveRun(const std::string& steps) {
    ASSERT_TRUE(Enter(EarlierRun::kRefuse, {"run.steps=" + steps}).ok());
    fs::create_directories(run_ / "checkpoints" / ("step_00000" + steps));
    std::ofstream(run_ / "metrics.jsonl") << "{\"step\":" << steps << "}\n";
  }
  // Every file but the locks, with its content.
  std::map<std::string, std::string> Content() const {
    std::map<std::string, std::string> content;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_.path())) {
      if (run::IsLockFile(entry.path().filename())) continue;
      content[entry.path().string()] =
          entry.is_regular_file() ? ReadFile(entry.path()).value() : "";
    }
    return content;
  }
  // The start is refused with this code, and has changed nothing.
  std::string Refused(absl::StatusCode code, EarlierRun earlier,
                      const std::vector<std::string>& overrides = {}) {
    const auto before = Content();
    const auto entered = Enter(earlier, overrides);
    EXPECT_EQ(entered.status().code(), code) << entered.status();
    EXPECT_EQ(Content(), before);
    return std::string(entered.status().message());
  }

  testing::ScopedDirectory scratch_;
  const fs::path run_ = scratch_.path() / "run";
};

// Promise: One process changes a run's directory.
TEST_F(RunDirectoryTest, ALiveRunIsLeftAloneWhateverIsAsked) {
  const auto live = Enter(EarlierRun::kRefuse);
  ASSERT_TRUE(live.ok()) << live.status();
  for (const EarlierRun earlier :
       {EarlierRun::kRefuse, EarlierRun::kResume, EarlierRun::kOverwrite, EarlierRun::kSetAside}) {
    EXPECT_THAT(Refused(absl::StatusCode::kUnavailable, earlier),
                AllOf(HasSubstr("the run is live: oxbow train, process"), HasSubstr("kill ")));
  }
  EXPECT_TRUE(live->lock.CheckHeld().ok());
}

TEST_F(RunDirectoryTest, ALearnerThatWasStartedByHandCounts) {
  LeaveRun("5");
  const auto learner = run::RunLock::Take(run_, {.program = "learner"});
  EXPECT_THAT(Refused(absl::StatusCode::kUnavailable, EarlierRun::kOverwrite),
              HasSubstr("the run is live: learner, process"));
}

// Promise: Nobody loses a run. `make train` renames an ended run and never deletes one. A resume
// with other settings, or with fewer steps than are done, is refused before a file of the run is
// written, and names each key with both values. A closed terminal drains the run.
TEST_F(RunDirectoryTest, AnEndedRunIsRenamedOrDeletedAndSaid) {
  LeaveRun("5");
  const auto aside = Enter(EarlierRun::kSetAside);
  ASSERT_TRUE(aside.ok()) << aside.status();
  EXPECT_EQ(aside->said, "the earlier run is now " + run_.string() + ".1");
  EXPECT_TRUE(fs::exists(run_.string() + ".1/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(run_ / "metrics.jsonl"));
  EXPECT_TRUE(aside->lock.CheckHeld().ok()) << "the lock is that of the renamed directory";
  EXPECT_EQ(Enter(EarlierRun::kSetAside).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RunDirectoryTest, AStartThatFailedBeforeItsFirstStepDoesNotBlockItsName) {
  const auto fail_at = [&](uint64_t step) {
    ASSERT_TRUE(run::WriteEnd(run_, {.end = run::RunEnd::kFailed, .step = step}).ok());
  };
  ASSERT_TRUE(Enter(EarlierRun::kRefuse).ok());
  std::ofstream(run_ / "metrics.jsonl").flush();
  fs::create_directories(run_ / "checkpoints");
  EXPECT_THAT(Refused(absl::StatusCode::kInvalidArgument, EarlierRun::kRefuse),
              HasSubstr("the run exists"));  // Nobody wrote how it ended.
  fail_at(3);
  Refused(absl::StatusCode::kInvalidArgument, EarlierRun::kRefuse);
  fail_at(0);
  for (const char* kept : {"metrics.jsonl", "notes.txt", "samples/step_000000/000.png",
                           "checkpoints/step_000001/manifest.json", "weights/a"}) {
    const fs::path parent = (run_ / kept).parent_path();
    fs::create_directories(parent);
    std::ofstream(run_ / kept) << "something";
    EXPECT_THAT(Refused(absl::StatusCode::kInvalidArgument, EarlierRun::kRefuse),
                HasSubstr("the run exists"))
        << kept;
    fs::remove(run_ / kept);
    if (parent != run_) fs::remove_all(parent);
  }
  std::ofstream(run_ / "logs" / "learner.log") << "E cannot listen";
  const auto entered = Enter(EarlierRun::kRefuse);
  ASSERT_TRUE(entered.ok()) << entered.status();
  EXPECT_EQ(entered->said,
            "begins again in " + run_.string() + ": the start before failed before its first step");
  EXPECT_FALSE(fs::exists(run_ / "logs" / "learner.log"));
}

TEST_F(RunDirectoryTest, EarlierRunsAreNumbered) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Enter(EarlierRun::kSetAside).ok());
  EXPECT_TRUE(fs::exists(run_.string() + ".2"));
  EXPECT_FALSE(fs::exists(run_.string() + ".3"));
}

TEST_F(RunDirectoryTest, OverwriteDeletesAllOfAnEndedRun) {
  LeaveRun("5");
  const auto entered = Enter(EarlierRun::kOverwrite);
  ASSERT_TRUE(entered.ok()) << entered.status();
  EXPECT_THAT(entered->said, HasSubstr("deleted the earlier run"));
  EXPECT_FALSE(fs::exists(run_ / "metrics.jsonl"));
  EXPECT_FALSE(fs::exists(run_ / "checkpoints"));
  EXPECT_TRUE(entered->lock.CheckHeld().ok());
}

TEST_F(RunDirectoryTest, WhatIsNoRunIsNotTouched) {
  fs::create_directories(run_);
  std::ofstream(run_ / "thesis.tex") << "years";
  for (const EarlierRun earlier :
       {EarlierRun::kRefuse, EarlierRun::kOverwrite, EarlierRun::kSetAside}) {
    Refused(absl::StatusCode::kInvalidArgument, earlier);
    EXPECT_FALSE(fs::exists(run_ / "LOCK"));
  }
}

TEST_F(RunDirectoryTest, LocksAreNoRunYet) {
  EXPECT_FALSE(HasRun(run_));
  fs::create_directories(run_);
  std::ofstream(run_ / "LOCK") << " ";
  EXPECT_FALSE(HasRun(run_));
  LeaveRun("5");
  EXPECT_TRUE(HasRun(run_));
}

// Promise: Nobody loses a run.
TEST_F(RunDirectoryTest, ARunThatHasLostItsCheckpointsIsNotBegunAnew) {
  LeaveRun("5");
  learner::RememberCheckpoint(run_, 5);
  fs::remove_all(run_ / "checkpoints");
  EXPECT_THAT(Refused(absl::StatusCode::kDataLoss, EarlierRun::kResume),
              HasSubstr("is empty, and step_000005 was there: put it back"));
}

TEST_F(RunDirectoryTest, ResumeOfNothingMakesNothing) {
  EXPECT_THAT(Refused(absl::StatusCode::kNotFound, EarlierRun::kResume),
              HasSubstr("no run to resume"));
  EXPECT_FALSE(fs::exists(run_));
}

// Promise: Nobody loses a run.
TEST_F(RunDirectoryTest, AResumeNamesEachChangedSettingAndWhereItIsFrom) {
  LeaveRun("5");
  const std::string said =
      Refused(absl::StatusCode::kInvalidArgument, EarlierRun::kResume,
              {"run.steps=9", "optimizer.learning_rate=1e-05", "batch.groups=3", "eval.every=7"});
  const v1::RunConfig before = Resolved().config;
  EXPECT_THAT(
      said,
      AllOf(HasSubstr("batch.groups: " + std::to_string(before.batch().groups()) +
                      " in the run, 3 here (--set)"),
            HasSubstr("optimizer.learning_rate: "), HasSubstr(" in the run, 1e-05 here (--set)"),
            Not(HasSubstr("eval.every")),
            HasSubstr("only these may change over --resume: run.name, run.directory, run.steps")));
}

// Promise: Older runs go on.
TEST_F(RunDirectoryTest, AResumeKeepsTheMemoryThatTheFirstStartChose) {
  const std::vector<std::string> lora = {"model.trained=lora", "model.device=cuda"};
  config::ResolvedConfig first = Resolved(lora);
  ASSERT_TRUE(first.chosen_memory);
  KeepMemory(run_, first);
  EXPECT_TRUE(first.chosen_memory) << "nothing is there yet";
  first.config.mutable_model()->set_memory("recompute + int8");
  ASSERT_TRUE(EnterRunDirectory(run_, EarlierRun::kRefuse, first).ok());

  config::ResolvedConfig again = Resolved(lora);
  KeepMemory(run_, again);
  EXPECT_EQ(again.config.model().memory(), "recompute + int8");
  EXPECT_FALSE(again.chosen_memory);
  EXPECT_TRUE(EnterRunDirectory(run_, EarlierRun::kResume, again).ok());

  config::ResolvedConfig told = Resolved({"model.trained=lora", "model.memory=fast"});
  KeepMemory(run_, told);
  EXPECT_EQ(told.config.model().memory(), "fast") << "a value of one's own wins";
}

TEST_F(RunDirectoryTest, AResumeTakesMoreStepsAndOtherServices) {
  LeaveRun("5");
  for (const char* steps : {"run.steps=5", "run.steps=9"}) {
    const auto entered = Enter(EarlierRun::kResume, {steps, "services.rollout_workers=3"});
    ASSERT_TRUE(entered.ok()) << entered.status();
    EXPECT_EQ(config::LoadResolved(run_ / "config.resolved.yaml")->services().rollout_workers(),
              3u);
    EXPECT_TRUE(fs::exists(run_ / "metrics.jsonl"));
  }
}

// Checkpoints of an older version are known by the name and place of their run, which the settings
// of this start no longer have.
// Promise: A run goes on wherever it lies.
TEST_F(RunDirectoryTest, ARenamedRunOfAnOlderVersionKeepsWhatItWas) {
  LeaveRun("5");
  const fs::path manifest = run_ / "checkpoints/step_000005/manifest.json";
  ASSERT_TRUE(WriteFileAtomically(
                  manifest, learner::ManifestText({.state = {.committed_steps = 5}, .files = {}}))
                  .ok());
  const std::string before = ReadFile(run_ / config::kResolvedConfig).value();
  ASSERT_TRUE(Enter(EarlierRun::kResume, {"run.steps=5", "run.name=a"}).ok());
  EXPECT_EQ(ReadFile(run_ / config::kFormerConfig).value(), before);
  ASSERT_TRUE(Enter(EarlierRun::kResume, {"run.steps=5", "run.name=b"}).ok());
  EXPECT_EQ(ReadFile(run_ / config::kFormerConfig).value(), before) << "the first";
}

TEST_F(RunDirectoryTest, WhatEvaluationsMeasureMayChangeAndIsTold) {
  LeaveRun("5");
  const fs::path manifest = run_ / "checkpoints/step_000005/manifest.json";
  ASSERT_TRUE(WriteFileAtomically(
                  manifest, learner::ManifestText({.state = {.committed_steps = 5}, .files = {}}))
                  .ok());
  const auto entered = Enter(EarlierRun::kResume, {"reward.observed=[brightness]", "run.steps=9"});
  ASSERT_TRUE(entered.ok()) << entered.status();
  EXPECT_EQ(entered->step, 5u);
  ASSERT_EQ(entered->changed.size(), 1u);
  EXPECT_EQ(entered->changed[0].key, "reward.observed");
}

TEST_F(RunDirectoryTest, AResumeWithFewerStepsThanAreDoneIsRefused) {
  LeaveRun("5");
  EXPECT_THAT(Refused(absl::StatusCode::kInvalidArgument, EarlierRun::kResume, {"run.steps=3"}),
              AllOf(HasSubstr("has 5 steps already"), HasSubstr("run.steps is 3 (--set)")));
}

}  // namespace
}  // namespace oxbow::cli
