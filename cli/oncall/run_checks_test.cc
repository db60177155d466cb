// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/oncall/doctor.h"
#include "core/model/fused/fused_layers.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

MachineNeeds NeedsWith(std::vector<std::string> set) {
  MachineNeeds needs;
  set.push_back("services.reward_servers=3");
  const auto resolved = config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/digits.yaml", set, {});
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  CheckConfig(*resolved, needs);
  return needs;
}

TEST(RunChecksTest, OwnServersAreCountedWhereEndpointsHaveOtherRewards) {
  const std::string elsewhere = "reward.endpoints=[scores:7070]";
  const uint32_t without = NeedsWith({elsewhere}).processes;
  EXPECT_EQ(NeedsWith({}).processes, without + 3);
  EXPECT_EQ(NeedsWith({elsewhere, "reward.scorers=[{name: digits_strict}]"}).processes,
            without + 3);
}

Check RewardsWith(std::vector<std::string> settings) {
  const std::string prompts = OXBOW_SOURCE_DIR "/configs/prompts/digits_";
  settings.push_back("prompts.train=" + prompts + "train.txt");
  settings.push_back("prompts.eval=" + prompts + "eval.txt");
  const auto resolved =
      config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/digits.yaml", settings, {});
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return CheckRewards(resolved->config);
}

TEST(RunChecksTest, RewardsAreLoadedBeforeARunStarts) {
  const Check embedded = RewardsWith({});
  EXPECT_EQ(embedded.verdict, Grade::kOk) << embedded.found;
  EXPECT_NE(embedded.found.find("digits_ocr"), std::string::npos) << embedded.found;
  const Check absent =
      RewardsWith({"reward.terms=[{name: pickscore, weight: 1}]", "reward.observed=[]",
                   "reward.scorers=[{name: pickscore, model: /nowhere/PickScore}]"});
  EXPECT_EQ(absent.verdict, Grade::kFail);
  EXPECT_NE(absent.found.find("/nowhere/PickScore"), std::string::npos) << absent.found;
}

TEST(RunChecksTest, CopiesOfARunWithoutADirectoryAreNamed) {
  const testing::ScopedDirectory scratch;
  const auto found = [&](const std::string& name) {
    const auto resolved = config::LoadRunConfig(
        OXBOW_SOURCE_DIR "/configs/digits.yaml",
        {"run.directory=" + (scratch.path() / "runs").string(), "run.name=" + name,
         "checkpoint.copy_to=" + (scratch.path() / "copies").string()},
        {});
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return CheckCopies(resolved->config);
  };
  EXPECT_TRUE(found("digits").empty());
  const auto copies = scratch.path() / "copies/digits-0123456789abcdef";
  std::filesystem::create_directories(copies);
  ASSERT_TRUE(learner::CheckpointStore(copies, 1).Write({.committed_steps = 7}, {}).ok());
  ASSERT_EQ(found("digits").size(), 1u);
  EXPECT_EQ(found("digits")[0].verdict, Grade::kFail);
  EXPECT_NE(found("digits")[0].found.find(copies.string()), std::string::npos);
  EXPECT_TRUE(found("another").empty());
}

TEST(RunChecksTest, LostCheckpointsAreAFailure) {
  const testing::ScopedDirectory run;
  EXPECT_TRUE(CheckCheckpoints(run.path()).empty()) << "it never had one";
  learner::RememberCheckpoint(run.path(), 7);
  ASSERT_EQ(CheckCheckpoints(run.path()).size(), 1u);
  EXPECT_EQ(CheckCheckpoints(run.path())[0].verdict, Grade::kFail);
  EXPECT_NE(CheckCheckpoints(run.path())[0].found.find("step_000007"), std::string::npos);
}

// Promise: A GPU build without the fused kernels says so.
TEST(RunChecksTest, KernelsAreLookedForWhereTheRunUsesAGpu) {
  const auto kernels = [](const std::string& device) -> std::optional<Grade> {
    MachineNeeds needs;
    const auto resolved = config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/digits.yaml",
                                                {"model.device=" + device}, {});
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    for (const Check& check : CheckConfig(*resolved, needs)) {
      if (check.name == "kernels") return check.verdict;
    }
    return std::nullopt;
  };
  EXPECT_EQ(kernels("cpu"), std::nullopt);
  EXPECT_EQ(kernels("cuda"), model::fused::HasKernels() ? Grade::kOk : Grade::kWarn);
}

// Promise: Drained is not done.
TEST(RunChecksTest, ARunThatEndedBeforeItsLastStepSaysHowToGoOn) {
  const auto state = [](run::RunEnd end) {
    return JudgeRun({.step = 7, .steps_total = 40, .ended = run::EndRecord{.end = end}}).front();
  };
  EXPECT_EQ(state(run::RunEnd::kInterrupted).verdict, Grade::kWarn);
  EXPECT_EQ(state(run::RunEnd::kInterrupted).found, "interrupted, step 7/40");
  EXPECT_NE(state(run::RunEnd::kInterrupted).fix.find("oxbow resume"), std::string::npos);
  EXPECT_EQ(state(run::RunEnd::kFailed).verdict, Grade::kFail);
  const std::string reason(300, 'r');
  const run::EndRecord full{.end = run::RunEnd::kFailed, .reason = reason};
  EXPECT_EQ(JudgeRun({.step = 7, .steps_total = 40, .ended = full}).front().found,
            "failed, step 7/40: " + reason);
  EXPECT_EQ(state(run::RunEnd::kUnsaid).verdict, Grade::kWarn) << "it was killed";
  EXPECT_EQ(state(run::RunEnd::kByRule).verdict, Grade::kOk);
}

TEST(RunChecksTest, ALastCheckpointThatWasNotCopiedIsNamedHoweverTheRunEnded) {
  for (const std::string before : {"", "drained by signal 2; "}) {
    const run::EndRecord end{.end = run::RunEnd::kInterrupted,
                             .reason = absl::StrCat(before, run::kUncopied, "exit status 7")};
    const Checks checks = JudgeRun({.step = 7, .steps_total = 40, .ended = end});
    ASSERT_GE(checks.size(), 2u);
    EXPECT_EQ(checks[1].name, "copies");
    EXPECT_EQ(checks[1].verdict, Grade::kWarn);
    EXPECT_EQ(checks[1].found, absl::StrCat(run::kUncopied, "exit status 7"));
  }
  const run::EndRecord copied{.end = run::RunEnd::kDone};
  EXPECT_EQ(JudgeRun({.step = 40, .steps_total = 40, .ended = copied}).size(),
            1 + io::Verdict().size());
}

}  // namespace
}  // namespace oxbow::cli
