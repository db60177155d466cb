// SPDX-License-Identifier: Apache-2.0
// Copies of checkpoints: whole, in order of age, and never in anybody's way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "config/file_paths.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "services/learner/checkpoint/checkpoint_writer.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kSoon = absl::Seconds(30);
constexpr char kUid[] = "digits-0123456789abcdef";

class CheckpointCopierTest : public ::testing::Test {
 protected:
  fs::path Checkpoints() const { return directory_.path() / "it's a run/checkpoints"; }
  fs::path Second() const { return directory_.path() / "second"; }
  fs::path Copies() const { return Second() / kUid; }

  void Write(uint64_t step) {
    const FileContent weights = [step](const WritePiece& write) {
      return write(absl::StrCat("weights ", step));
    };
    fs::create_directories(Checkpoints());
    ASSERT_TRUE(CheckpointStore(Checkpoints(), 9)
                    .Write({.committed_steps = step, .policy_version = 2 * step},
                           {{"weights.safetensors", weights}})
                    .ok());
  }

  std::unique_ptr<CheckpointCopier> Copier(const std::string& copy_to, uint64_t epoch = 1) {
    return std::make_unique<CheckpointCopier>(
        CheckpointCopier::Options{.checkpoints = Checkpoints(),
                                  .target = config::ParseCopyTarget(copy_to).value(),
                                  .run_uid = kUid,
                                  .epoch = epoch,
                                  .keep = 2},
        [this](const absl::Status& copied) { ++(copied.ok() ? copied_ : failed_); });
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  std::atomic<int> copied_ = 0;
  std::atomic<int> failed_ = 0;
};

// Promise: A copy of a checkpoint never ends a run.
TEST_F(CheckpointCopierTest, ACopyIsACheckpointFromWhichARunGoesOn) {
  const auto copier = Copier(Second().string());
  for (const uint64_t step : {1u, 2u, 3u}) {
    Write(step);
    copier->Copy(step);
    ASSERT_TRUE(copier->Finish(kSoon));
  }
  EXPECT_EQ(copied_, 3);
  EXPECT_EQ(copier->failures(), 0u);
  EXPECT_FALSE(fs::exists(Copies() / "step_000001")) << "as many are kept as the config says";

  fs::remove_all(Checkpoints());
  fs::create_directories(Checkpoints());
  fs::copy(Copies() / "step_000003", Checkpoints() / "step_000003");
  const auto back = CheckpointStore(Checkpoints(), 2).LoadNewest();
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->state.policy_version, 6u);
  EXPECT_EQ(ReadFile(back->directory / "weights.safetensors").value(), "weights 3");
}

TEST_F(CheckpointCopierTest, ACommandGetsTheDirectoryAsOneArgumentAndKnowsTheRun) {
  Write(7);
  const std::string to = absl::StrCat("'", Second().string(), "'/$OXBOW_RUN_UID");
  const auto copier = Copier(absl::StrCat("command: mkdir -p ", to, " && cp -r {} ", to));
  copier->Copy(7);
  ASSERT_TRUE(copier->Finish(kSoon));
  EXPECT_EQ(copier->failures(), 0u);
  EXPECT_EQ(ReadFile(Copies() / "step_000007/weights.safetensors").value(), "weights 7");
}

TEST_F(CheckpointCopierTest, ADiskThatIsNotMountedGetsNoCopyBesideIt) {
  Write(7);
  const auto copier = Copier((Second() / "disk").string());
  copier->Copy(7);
  ASSERT_TRUE(copier->Finish(kSoon));
  EXPECT_EQ(copier->failures(), 1u);
  EXPECT_FALSE(fs::exists(Second()));
  fs::create_directories(Second());
  copier->Copy(7);
  ASSERT_TRUE(copier->Finish(kSoon));
  EXPECT_TRUE(fs::exists(Second() / "disk" / kUid / "step_000007"));
}

// Another run with the same target, and the run itself after its disk was lost, begin at step 0.
// Promise: A copy of a checkpoint never ends a run. With `checkpoint.copy_to` each checkpoint is
// copied beside training. A copy that fails is counted and logged. Copies are kept by run: none of
// another run is deleted, and none of a later step. Two learners that go on from copies of one run
// directory do not mix theirs: the newer start copies. A run whose directory was lost goes on from
// a copy that is put back, as the same run: its buffer keeps all entries. A start on an empty
// directory beside copies of its name is refused, with the command that puts them back.
TEST_F(CheckpointCopierTest, NoCopyIsDeletedButOlderOnesOfTheSameRun) {
  const fs::path other = Second() / "digits-fedcba9876543210";
  for (const uint64_t step : {15u, 20u, 25u}) {
    Write(step);
    fs::create_directories(other);
    fs::create_directories(Copies());
    const std::string name = CheckpointName(step);
    fs::copy(Checkpoints() / name, other / name);
    fs::copy(Checkpoints() / name, Copies() / name);
  }
  const auto copier = Copier(Second().string());
  for (const uint64_t step : {1u, 2u, 3u}) {
    Write(step);
    copier->Copy(step);
    ASSERT_TRUE(copier->Finish(kSoon));
  }
  EXPECT_EQ(copied_, 3);
  for (const uint64_t step : {15u, 20u, 25u}) {
    EXPECT_TRUE(fs::exists(other / CheckpointName(step))) << step;
    EXPECT_TRUE(fs::exists(Copies() / CheckpointName(step))) << step;
  }
  EXPECT_FALSE(fs::exists(Copies() / "step_000001"));
  EXPECT_TRUE(fs::exists(Copies() / "step_000003"));
}

// Both go on from copies of one run directory.
// Promise: A copy of a checkpoint never ends a run.
TEST_F(CheckpointCopierTest, OfTwoStartsOfOneRunTheNewerOneCopies) {
  for (const uint64_t step : {10u, 20u, 30u}) Write(step);
  const auto copy = [&](CheckpointCopier& copier, uint64_t step) {
    const uint64_t failures = copier.failures();
    copier.Copy(step);
    EXPECT_TRUE(copier.Finish(kSoon));
    return copier.failures() == failures;
  };
  const auto first = Copier(Second().string(), 6), second = Copier(Second().string(), 6);
  EXPECT_TRUE(copy(*first, 10));
  EXPECT_FALSE(copy(*second, 20)) << "it counts alike and came later";
  EXPECT_FALSE(fs::exists(Copies() / "step_000020"));
  EXPECT_TRUE(copy(*first, 10)) << "the same start again";
  const auto later = Copier(Second().string(), 7);
  EXPECT_TRUE(copy(*later, 30));
  EXPECT_FALSE(copy(*first, 20)) << "a newer start has the place";
  const config::CopyTarget target = config::ParseCopyTarget(Second().string()).value();
  EXPECT_EQ(StartThatCopies(target, kUid), 7u);
  EXPECT_EQ(StartThatCopies(target, "digits-fedcba9876543210"), 0u);
}

// Promise: A copy of a checkpoint never ends a run.
TEST_F(CheckpointCopierTest, AnEmptyDirectoryBesideCopiesOfItsNameIsRefused) {
  const config::CopyTarget target = config::ParseCopyTarget(Second().string()).value();
  const fs::path run = directory_.path() / "run of mine";
  fs::create_directories(run);
  EXPECT_TRUE(CheckNoCopies(run, "digits", target).ok()) << "there is no target yet";
  const auto copier = Copier(Second().string());
  Write(4);
  copier->Copy(4);
  ASSERT_TRUE(copier->Finish(kSoon));

  const absl::Status refused = CheckNoCopies(run, "digits", target);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  const std::string restore =
      absl::StrCat("mkdir -p '", run.string(), "/checkpoints' && cp -r ", Copies().string(),
                   "/step_* '", run.string(), "/checkpoints'");
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(::testing::HasSubstr(restore), ::testing::HasSubstr("step 4"),
                               ::testing::HasSubstr("--beside-copies")));
  ASSERT_EQ(std::system(restore.c_str()), 0);
  EXPECT_EQ(CheckpointStore(run / "checkpoints", 2).LoadNewest()->state.committed_steps, 4u);

  EXPECT_TRUE(CheckNoCopies(run, "digits-2", target).ok()) << "a run of another name";
  EXPECT_TRUE(CheckNoCopies(run, "digits", config::ParseCopyTarget("command: x {}").value()).ok());
  // A run that has begun anyhow goes on, unless the copies are its own.
  std::ofstream(run / "run_uid") << "digits-1111111111111111\n";
  EXPECT_TRUE(CheckNoCopies(run, "digits", target).ok());
  std::ofstream(run / "run_uid") << kUid << "\n";
  EXPECT_FALSE(CheckNoCopies(run, "digits", target).ok());
}

// Promise: A copy of a checkpoint never ends a run.
TEST_F(CheckpointCopierTest, AFailureIsCountedAndTheNextCopyIsTried) {
  std::ofstream(Second()) << "a file is in the way";
  const auto copier = Copier(Second().string());
  Write(1);
  copier->Copy(1);
  ASSERT_TRUE(copier->Finish(kSoon));
  EXPECT_EQ(copier->failures(), 1u);
  EXPECT_EQ(failed_, 1);
  fs::remove(Second());
  copier->Copy(1);
  ASSERT_TRUE(copier->Finish(kSoon));
  EXPECT_EQ(copied_, 1);

  const auto failing = Copier("command: exit 3 # {}");
  failing->Copy(1);
  ASSERT_TRUE(failing->Finish(kSoon));
  EXPECT_EQ(failing->failures(), 1u);
}

// The copy of step 2 lasts until a pipe is closed; three more become due meanwhile.
TEST_F(CheckpointCopierTest, WhileOneIsMadeOnlyTheNewestWaits) {
  const std::string directory = directory_.path().string();
  const std::string gate = directory + "/step_000002";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const auto copier =
      Copier(absl::StrCat("command: test ! -p ", directory, "/$(basename {}) || cat ", gate,
                          "; basename {} >> ", directory, "/log"));
  copier->Copy(2);
  std::ofstream held(gate);  // Opened once `cat` reads.
  for (const uint64_t step : {3u, 4u, 5u}) copier->Copy(step);
  EXPECT_FALSE(copier->Finish(absl::ZeroDuration()));
  held.close();
  ASSERT_TRUE(copier->Finish(kSoon));
  EXPECT_EQ(ReadFile(directory + "/log").value(), "step_000002\nstep_000005\n");
}

// Promise: A copy of a checkpoint never ends a run.
TEST_F(CheckpointCopierTest, TheEndKillsACommandThatHangs) {
  const fs::path gate = directory_.path() / "gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  auto copier = Copier(absl::StrCat("command: cat ", gate.string(), " # {}"));
  copier->Copy(1);
  const std::ofstream held(gate);  // Opened while `cat` reads, which then never ends by itself.
  EXPECT_FALSE(copier->Finish(absl::ZeroDuration()));
  copier.reset();
  EXPECT_EQ(failed_, 1);
}

// In a container the learner is process 1: the child of a shell that has ended is left to it.
TEST_F(CheckpointCopierTest, WhatACommandLeavesBehindIsReapedByTheNextOne) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const fs::path gate = directory_.path() / "gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  const auto copier = Copier(
      absl::StrCat("command: test ! -p ", gate.string(), " || cat ", gate.string(), " & # {}"));
  copier->Copy(1);
  std::ofstream(gate).close();  // The `cat` behind the shell ends.
  ASSERT_TRUE(copier->Finish(kSoon));
  fs::remove(gate);
  const auto children = [] {
    siginfo_t info{};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
  };
  for (uint64_t step = 2; children() && step < 1000; ++step) {
    copier->Copy(step);
    ASSERT_TRUE(copier->Finish(kSoon));
  }
  EXPECT_FALSE(children());
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(CopyTargetTest, IsADirectoryOrACommandWithAPlaceForTheCheckpoint) {
  EXPECT_EQ(config::ParseCopyTarget("/mnt/backup/run")->directory, "/mnt/backup/run");
  EXPECT_EQ(config::ParseCopyTarget("command: aws s3 cp --recursive {} s3://b/r")->command,
            "aws s3 cp --recursive {} s3://b/r");
  EXPECT_EQ(config::ParseCopyTarget("command: backup").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CommandFor("cp -r {} {}.copy", "/a/it's"), R"(cp -r '/a/it'\''s' '/a/it'\''s'.copy)");
}

}  // namespace
}  // namespace oxbow::learner
