// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "run/run_record.h"
#include "services/learner/record/step_log.h"

namespace oxbow::learner {
namespace {

constexpr char kReward[] = "eval/reward_mean";

class CheckpointStoreTest : public ::testing::Test {
 protected:
  CheckpointStoreTest()
      : directory_(std::filesystem::path(::testing::TempDir()) /
                   ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
  }
  ~CheckpointStoreTest() override { std::filesystem::remove_all(directory_); }

  static RunState StateAt(uint64_t step) {
    return {.committed_steps = step,
            .policy_version = 2 * step,
            .epoch = 3,
            .prompts = {.pass = 1, .taken = step},
            .config_sha256 = "c0ffee",
            .buffer_checkpoint = CheckpointName(step),
            .wall_seconds = 1.5};
  }
  static std::map<std::string, std::string> FilesAt(uint64_t step) {
    return {{"weights.safetensors", absl::StrCat("weights ", step)},
            {"optimizer.safetensors", std::string(1000, static_cast<char>(step))}};
  }

  // In pieces of 100 bytes.
  static FileContent InPieces(const std::string& bytes) {
    return [bytes](const WritePiece& write) -> absl::Status {
      for (size_t at = 0; at < bytes.size(); at += 100) {
        OXBOW_RETURN_IF_ERROR(write(std::string_view(bytes).substr(at, 100)));
      }
      return absl::OkStatus();
    };
  }

  static absl::Status Write(const CheckpointStore& store, uint64_t step) {
    std::map<std::string, FileContent> files;
    for (const auto& [name, bytes] : FilesAt(step)) files[name] = InPieces(bytes);
    return store.Write(StateAt(step), files).status();
  }

  static std::map<std::string, std::string> Read(const Checkpoint& checkpoint) {
    std::map<std::string, std::string> files;
    for (const std::string& name : checkpoint.files) {
      files[name] = ReadFile(checkpoint.directory / name).value();
    }
    return files;
  }

  void Damage(const std::string& file) {
    std::fstream stream(directory_ / file, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(stream.good());
    stream.put('X');
  }

  const std::filesystem::path directory_;
};

std::vector<std::string> StepsIn(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The learner tries again after kDataLoss, and after this it ends.
TEST_F(CheckpointStoreTest, OneThatNobodyCouldReadBackIsAnErrorThatStaysAndLeavesNothing) {
  const CheckpointStore store(directory_, 2);
  RunState state = StateAt(25);
  state.run_uid = ".hidden-0123456789abcdef";
  const absl::Status refused = store.Write(state, {{"a", InPieces("a")}}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("run_uid .hidden-"));
  EXPECT_EQ(StepsIn(directory_), std::vector<std::string>{});
}

TEST_F(CheckpointStoreTest, ComesBackAsItWasWritten) {
  const CheckpointStore store(directory_, 2);
  ASSERT_TRUE(Write(store, 25).ok());
  const auto loaded = store.LoadNewest();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(Read(*loaded), FilesAt(25));
  EXPECT_EQ(loaded->state.committed_steps, 25u);
  EXPECT_EQ(loaded->state.policy_version, 50u);
  EXPECT_EQ(loaded->state.prompts, (PromptPosition{1, 25}));
  EXPECT_EQ(loaded->state.buffer_checkpoint, "step_000025");
}

// Promise: A run can go back.
TEST_F(CheckpointStoreTest, RollBackMakesAnEarlierOneTheNewestAndKeepsTheOthersAside) {
  const CheckpointStore store(directory_, 9);
  for (const uint64_t step : {1u, 2u, 3u}) ASSERT_TRUE(Write(store, step).ok());
  EXPECT_EQ(store.RollBack(7).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 3u);
  const auto state = store.RollBack(1);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->policy_version, 2u);
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1u);
  EXPECT_TRUE(std::filesystem::exists(directory_ / "rolled_back_000003"));
}

// Promise: A run can go back.
TEST_F(CheckpointStoreTest, RollBackToADamagedOneChangesNothing) {
  const CheckpointStore store(directory_, 9);
  for (const uint64_t step : {1u, 2u}) ASSERT_TRUE(Write(store, step).ok());
  Damage("step_000001/weights.safetensors");
  EXPECT_EQ(store.RollBack(1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(store.LoadAt(1).status().message()),
              ::testing::HasSubstr("step_000001/weights.safetensors; choose another: step_000002"));
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 2u);
}

TEST_F(CheckpointStoreTest, KeepsTheNewestAndDeletesTheRest) {
  const CheckpointStore store(directory_, 2);
  for (const uint64_t step : {1u, 2u, 3u}) ASSERT_TRUE(Write(store, step).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "step_000001"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "step_000002"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "step_000003"));
}

// Writes a checkpoint whose weights were evaluated.
absl::Status WriteScored(const CheckpointStore& store, uint64_t step, double reward) {
  return store
      .Write({.committed_steps = step, .evaluated = {{kReward, reward}, {"other", -reward}}}, {})
      .status();
}

// Promise: The best checkpoint stays and can be named. Besides the newest, the checkpoint whose
// held-out evaluation has the highest `checkpoint.best` is kept over any number of later ones and
// over restarts. Its measurement is in its own manifest, so a crash at any moment leaves a
// consistent best.
TEST_F(CheckpointStoreTest, TheBestIsKeptBesidesTheNewestAndIsNamed) {
  const CheckpointStore store(directory_, 1, kReward);
  ASSERT_TRUE(WriteScored(store, 10, 0.5).ok());
  ASSERT_TRUE(WriteScored(store, 20, 0.9).ok());
  EXPECT_EQ(StepsIn(directory_), std::vector<std::string>{"step_000020"})
      << "it is the newest, too";
  ASSERT_TRUE(WriteScored(store, 30, 0.7).ok());
  ASSERT_TRUE(Write(store, 35).ok());  // Not evaluated.
  EXPECT_EQ(StepsIn(directory_), (std::vector<std::string>{"step_000020", "step_000035"}));
  EXPECT_EQ(store.Best(kReward)->committed_steps, 20u);
  EXPECT_EQ(store.Best(kReward)->value, 0.9);
  EXPECT_EQ(store.LoadNamed("best", kReward)->state.committed_steps, 20u);
  EXPECT_EQ(store.LoadNamed("newest", kReward)->state.committed_steps, 35u);
  EXPECT_EQ(store.LoadNamed("20", "")->state.committed_steps, 20u);
  EXPECT_EQ(ReadFile(directory_ / "best").value(), "step_000020\n");
  // A better one takes its place.
  ASSERT_TRUE(WriteScored(store, 40, 0.95).ok());
  EXPECT_EQ(StepsIn(directory_), std::vector<std::string>{"step_000040"});
}

// Promise: The best checkpoint stays and can be named.
TEST_F(CheckpointStoreTest, OfEqualsTheEarliestIsTheBestAndAnyMetricCanBeAskedFor) {
  const CheckpointStore store(directory_, 5);
  for (const uint64_t step : {10, 20, 30}) ASSERT_TRUE(WriteScored(store, step, 0.5).ok());
  EXPECT_EQ(store.Best(kReward)->committed_steps, 10u);
  ASSERT_TRUE(WriteScored(store, 40, 0.1).ok());
  EXPECT_EQ(store.Best("other")->committed_steps, 40u);
  EXPECT_FALSE(store.Best("nothing").has_value());
  EXPECT_EQ(store.LoadNamed("best", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.LoadNamed("best", "nothing").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store.LoadNamed("last", "").status().code(), absl::StatusCode::kInvalidArgument);
}

// Names that a person may type; a number is never taken for another one.
TEST_F(CheckpointStoreTest, ANumberThatIsNoStepIsRefused) {
  const CheckpointStore store(directory_, 5);
  ASSERT_TRUE(Write(store, 1).ok());
  ASSERT_TRUE(Write(store, 10).ok());
  for (const char* wrong :
       {"18446744073709551617", "99999999999999999999999999", "-1", "1.0", "1e1", "0x1", ""}) {
    const absl::Status status = store.LoadNamed(wrong, "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong << ": " << status;
  }
  EXPECT_EQ(store.LoadNamed("18446744073709551615", "").status().code(),
            absl::StatusCode::kNotFound);
}

// Whatever a crash leaves, the best follows from the checkpoints that are there.
// Promise: The best checkpoint stays and can be named.
TEST_F(CheckpointStoreTest, AStartAfterACrashFindsTheBestWithoutItsMark) {
  ASSERT_TRUE(WriteScored(CheckpointStore(directory_, 1, kReward), 10, 0.5).ok());
  // As a crash between the rename and the mark leaves it.
  ASSERT_TRUE(WriteScored(CheckpointStore(directory_, 9), 20, 0.9).ok());
  ASSERT_EQ(ReadFile(directory_ / "best").value(), "step_000010\n");
  const CheckpointStore again(directory_, 1, kReward);
  EXPECT_EQ(again.LoadNamed("best", kReward)->state.committed_steps, 20u);
  ASSERT_TRUE(WriteScored(again, 30, 0.6).ok());
  EXPECT_EQ(StepsIn(directory_), (std::vector<std::string>{"step_000020", "step_000030"}));
}

// Promise: The best checkpoint stays and can be named.
TEST_F(CheckpointStoreTest, AfterARollBackTheBestIsOneThatIsLeft) {
  const CheckpointStore store(directory_, 9, kReward);
  ASSERT_TRUE(WriteScored(store, 10, 0.5).ok());
  ASSERT_TRUE(WriteScored(store, 20, 0.4).ok());
  ASSERT_TRUE(WriteScored(store, 30, 0.9).ok());
  ASSERT_TRUE(store.RollBack(20).ok());
  EXPECT_EQ(store.LoadNamed("best", kReward)->state.committed_steps, 10u);
}

// Promise: Resume continues from the checkpoint.
TEST_F(CheckpointStoreTest, FallsBackWhenTheNewestIsDamagedInAnyFile) {
  const CheckpointStore store(directory_, 3);
  for (const std::string file : {"weights.safetensors", "manifest.json", "optimizer.safetensors"}) {
    SCOPED_TRACE(file);
    ASSERT_TRUE(Write(store, 1).ok());
    ASSERT_TRUE(Write(store, 2).ok());
    Damage(absl::StrCat("step_000002/", file));
    const auto loaded = store.LoadNewest();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->state.committed_steps, 1u);
  }
}

// A run that resumed from an older checkpoint reaches the damaged one's number again.
// Promise: Resume continues from the checkpoint.
// Promise: A disk that fails for a while ends no run.
TEST_F(CheckpointStoreTest, ADamagedOneIsRenamedAndNeverDeleted) {
  const CheckpointStore store(directory_, 1);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(Write(CheckpointStore(directory_, 9), 5).ok());
    ASSERT_TRUE(Write(CheckpointStore(directory_, 9), 9).ok());
    Damage("step_000009/weights.safetensors");
    const auto loaded = store.LoadNewest();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->state.committed_steps, 5u);
    EXPECT_EQ(loaded->damaged, std::vector<uint64_t>{9});
    ASSERT_TRUE(store.SetDamagedAside(loaded->damaged).ok());
  }
  EXPECT_THAT(std::string(store.LoadAt(9).status().message()),
              ::testing::HasSubstr("what is damaged of it is step_000009.damaged"));
  for (const uint64_t step : {6, 9, 10}) ASSERT_TRUE(Write(store, step).ok());
  EXPECT_EQ(
      StepsIn(directory_),
      (std::vector<std::string>{"step_000009.damaged", "step_000009.damaged.2", "step_000010"}));
}

// Without descriptors nothing can be read for a while, as on a disk that is away.
// Promise: Resume continues from the checkpoint.
// Promise: A disk that fails for a while ends no run.
TEST_F(CheckpointStoreTest, ADiskThatCannotBeReadIsNoDamage) {
  const CheckpointStore store(directory_, 9);
  for (const uint64_t step : {1u, 2u}) ASSERT_TRUE(Write(store, step).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status listed = store.empty().status();
  const absl::Status newest = store.LoadNewest().status();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(listed.code(), absl::StatusCode::kResourceExhausted) << listed;
  EXPECT_EQ(newest.code(), absl::StatusCode::kResourceExhausted) << newest;
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 2u);
}

// In a second place newer ones may be all that is left of a run.
TEST_F(CheckpointStoreTest, NewerOnesAreNeverDeleted) {
  const CheckpointStore store(directory_, 1);
  ASSERT_TRUE(Write(store, 25).ok());
  ASSERT_TRUE(Write(store, 30).ok());
  ASSERT_TRUE(Write(store, 5).ok());
  ASSERT_TRUE(Write(store, 10).ok());
  EXPECT_EQ(StepsIn(directory_), (std::vector<std::string>{"step_000010", "step_000030"}));
}

TEST_F(CheckpointStoreTest, AnUnfinishedCheckpointIsNotSeen) {
  const CheckpointStore store(directory_, 2);
  ASSERT_TRUE(Write(store, 1).ok());
  std::filesystem::copy(directory_ / "step_000001", directory_ / "step_000002.tmp");
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1u);
  EXPECT_TRUE(Write(store, 2).ok()) << "what a crash left behind is in nobody's way";
}

// A file of 4 GiB and 8 bytes, all of them a hole.
// Promise: Checkpoints have any size and take one copy. Files over 4 GiB are written and read.
// Writing takes at most a tenth more host memory than one copy of what is saved, on a thread beside
// training. A write that fails is its own alone: the next one is made.
TEST_F(CheckpointStoreTest, AFileOfMoreThanFourGibibytesIsReadBack) {
  constexpr uint64_t kBytes = (uint64_t{4} << 30) + 8;
  constexpr char kHash[] = "5521ceac294c5e831f90c7de21c6385912da4944ecfe7e840868f4d8f335c463";
  const CheckpointStore store(directory_, 2);
  ASSERT_TRUE(Write(store, 1).ok());
  const std::filesystem::path path = directory_ / "step_000001";
  std::filesystem::resize_file(path / "weights.safetensors", 0);
  std::filesystem::resize_file(path / "weights.safetensors", kBytes);
  CheckpointManifest manifest = *ParseManifest(ReadFile(path / "manifest.json").value());
  manifest.files["weights.safetensors"] = {.sha256 = kHash, .bytes = kBytes};
  std::ofstream(path / "manifest.json") << ManifestText(manifest);
  const auto loaded = store.LoadNewest();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(loaded->files.contains("weights.safetensors"));
}

// To hash it would take hours.
// Promise: Resume continues from the checkpoint.
TEST_F(CheckpointStoreTest, AFileThatBecameHugeIsDamageAndIsNotRead) {
  const CheckpointStore store(directory_, 2);
  for (const uint64_t step : {1u, 2u}) ASSERT_TRUE(Write(store, step).ok());
  std::filesystem::resize_file(directory_ / "step_000002/weights.safetensors", uint64_t{1} << 43);
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1u);
}

TEST_F(CheckpointStoreTest, AManifestOfAnotherStepIsDamage) {
  const CheckpointStore store(directory_, 3);
  ASSERT_TRUE(Write(store, 1).ok());
  std::filesystem::copy(directory_ / "step_000001", directory_ / "step_000002");
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1u);
}

TEST_F(CheckpointStoreTest, AManifestWithAValueOfAnotherTypeFallsBackAndIsNoRollBack) {
  const CheckpointStore store(directory_, 3);
  for (const uint64_t step : {1u, 2u}) ASSERT_TRUE(Write(store, step).ok());
  std::ofstream(directory_ / "step_000002/manifest.json")
      << R"({"state": {"committed_steps": "two"}, "files": {}})";
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1u);
  EXPECT_EQ(store.RollBack(2).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointStoreTest, TheNewestIsThatOfTheHighestNumber) {
  const CheckpointStore store(directory_, 2);
  for (const uint64_t step : {999'998u, 999'999u, 1'000'000u}) ASSERT_TRUE(Write(store, step).ok());
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1'000'000u);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "step_999998"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "step_999999"));
  ASSERT_TRUE(store.RollBack(999'999).ok());
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 999'999u);
}

TEST_F(CheckpointStoreTest, AnErrorWhileAFileIsGivenLeavesNothing) {
  const CheckpointStore store(directory_, 2);
  ASSERT_TRUE(Write(store, 1).ok());
  const auto failing = [](const WritePiece& write) -> absl::Status {
    OXBOW_RETURN_IF_ERROR(write("half"));
    return absl::ResourceExhaustedError("no more");
  };
  EXPECT_EQ(store.Write(StateAt(2), {{"weights.safetensors", failing}}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "step_000002.tmp"));
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1u);
}

TEST_F(CheckpointStoreTest, ARefusalBeforeTheRenameLeavesNothing) {
  const CheckpointStore store(directory_, 1);
  ASSERT_TRUE(Write(store, 1).ok());
  const auto refuse = [&]() -> absl::Status {
    EXPECT_TRUE(std::filesystem::exists(directory_ / "step_000002.tmp/manifest.json"));
    return absl::AbortedError("another learner has the directory");
  };
  EXPECT_EQ(
      store.Write(StateAt(2), {{"weights.safetensors", InPieces("w")}}, refuse).status().code(),
      absl::StatusCode::kAborted);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "step_000002.tmp"));
  EXPECT_EQ(store.LoadNewest()->state.committed_steps, 1u);
}

// A disk that is full at any byte of the weights of an owed evaluation costs that evaluation alone.
// Promise: An owed evaluation costs no checkpoint. The weights of an evaluation that a stop cut off
// are written behind all that the run goes on from. If they cannot be stored, as on a full disk, or
// leave no room for the manifest, the checkpoint is there without them and without that evaluation,
// and one warning says so. Weights of any other step than the first owed one are never evaluated in
// its place.
TEST_F(CheckpointStoreTest, WhatAnOwedEvaluationCannotStoreCostsNoCheckpoint) {
  const CheckpointStore store(directory_, 1);
  const std::filesystem::path unfinished = UnfinishedCheckpoint(directory_, 25);
  RunState state = StateAt(25);
  state.owed_evaluations = {24, 25};
  constexpr size_t kPieces = 4;
  for (size_t room = 0; room <= kPieces; ++room) {
    SCOPED_TRACE(room);
    const auto owed = [&](const WritePiece& write) -> absl::Status {
      for (const auto& [name, bytes] : FilesAt(25)) {
        EXPECT_TRUE(std::filesystem::exists(unfinished / name)) << "what is needed comes first";
      }
      EXPECT_TRUE(std::filesystem::exists(unfinished / "of_rank_1"));
      for (size_t piece = 0; piece < kPieces; ++piece) {
        if (piece == room) return absl::ResourceExhaustedError("no space left on device");
        OXBOW_RETURN_IF_ERROR(write(std::string(100, 'o')));
      }
      return absl::OkStatus();
    };
    std::map<std::string, FileContent> files = {{kOwedWeights, owed}};
    for (const auto& [name, bytes] : FilesAt(25)) files[name] = InPieces(bytes);
    const auto others = [&]() -> absl::StatusOr<std::map<std::string, FileDigest>> {
      OXBOW_ASSIGN_OR_RETURN(const FileDigest digest,
                             WriteContent(unfinished / "of_rank_1", InPieces("moments")));
      return std::map<std::string, FileDigest>{{"of_rank_1", digest}};
    };
    ASSERT_TRUE(store.Prepare(25).ok());
    const auto written = store.Write(state, files, {}, others);
    ASSERT_TRUE(written.ok()) << written.status();
    const auto loaded = store.LoadNewest();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::map<std::string, std::string> wanted = FilesAt(25);
    wanted["of_rank_1"] = "moments";
    if (room == kPieces) wanted[kOwedWeights] = std::string(100 * kPieces, 'o');
    EXPECT_EQ(Read(*loaded), wanted);
    EXPECT_EQ(*written, [&] {
      uint64_t bytes = 0;
      for (const auto& [name, content] : wanted) bytes += content.size();
      return bytes;
    }());
    EXPECT_EQ(loaded->state.owed_evaluations,
              room == kPieces ? (std::vector<uint64_t>{24, 25}) : std::vector<uint64_t>{25})
        << "an evaluation without weights is owed no more; that of the checkpoint's own is";
    for (const auto& entry : std::filesystem::directory_iterator(loaded->directory)) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == "manifest.json" || wanted.contains(name)) << name << " takes room";
    }
  }
}

// Owed weights that just fit may leave no room for the manifest. The limit on the size of files
// stands in for the disk: a manifest that names one more file does not pass it.
// Promise: An owed evaluation costs no checkpoint.
TEST_F(CheckpointStoreTest, OwedWeightsThatLeaveNoRoomForTheManifestGo) {
  const CheckpointStore store(directory_, 1);
  std::map<std::string, FileContent> files;
  for (const auto& [name, bytes] : FilesAt(25)) files[name] = InPieces(bytes);
  RunState state = StateAt(25);
  state.owed_evaluations = {25};
  ASSERT_TRUE(store.Write(state, files).ok());
  const uintmax_t room = std::filesystem::file_size(directory_ / "step_000025" / "manifest.json");
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  files[kOwedWeights] = [&](const WritePiece& write) -> absl::Status {
    OXBOW_RETURN_IF_ERROR(write(std::string(400, 'o')));
    const rlimit full{.rlim_cur = room, .rlim_max = unlimited.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    return absl::OkStatus();
  };
  state.owed_evaluations = {24, 25};
  const auto written = store.Write(state, files);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  std::signal(SIGXFSZ, before);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto loaded = store.LoadNewest();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(Read(*loaded), FilesAt(25));
  EXPECT_EQ(loaded->state.owed_evaluations, std::vector<uint64_t>{25});
  EXPECT_FALSE(std::filesystem::exists(loaded->directory / kOwedWeights));
  uint64_t bytes = 0;
  for (const auto& [name, content] : FilesAt(25)) bytes += content.size();
  EXPECT_EQ(*written, bytes);
}

// The disk is full once all files of a checkpoint are written. The limit on the size of files
// stands in for it: names change, and no byte is written.
// Promise: Resume continues from the checkpoint.
TEST_F(CheckpointStoreTest, AMarkForWhichThereIsNoRoomCostsNoCheckpoint) {
  const CheckpointStore store(directory_, 1);
  ASSERT_TRUE(Write(store, 1).ok());
  ASSERT_TRUE(Write(store, 2).ok());
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  const auto fill = [&]() -> absl::Status {
    const rlimit full{.rlim_cur = 0, .rlim_max = unlimited.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    return absl::OkStatus();
  };
  const auto written = store.Write(StateAt(3), {{"weights.safetensors", InPieces("w")}}, fill);
  const auto rolled_back = store.RollBack(3);  // A mark is all that it writes.
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  std::signal(SIGXFSZ, before);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_TRUE(rolled_back.ok()) << rolled_back.status();
  const auto loaded = CheckpointStore(directory_, 1).LoadNewest();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->state.committed_steps, 3u);
  EXPECT_EQ(StepsIn(directory_), std::vector<std::string>{"step_000003"}) << "room comes back";
  EXPECT_FALSE(std::filesystem::exists(directory_ / "newest")) << "it named an older one";
  ASSERT_TRUE(Write(store, 4).ok());
  EXPECT_EQ(ReadFile(directory_ / "newest").value(), "step_000004\n");
}

TEST_F(CheckpointStoreTest, NothingThereIsNotFoundAndNothingWholeIsLost) {
  const CheckpointStore store(directory_, 2);
  EXPECT_TRUE(store.empty().value());
  EXPECT_EQ(store.LoadNewest().status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Write(store, 1).ok());
  Damage("step_000001/weights.safetensors");
  EXPECT_FALSE(store.empty().value());
  EXPECT_EQ(store.LoadNewest().status().code(), absl::StatusCode::kDataLoss);
}

// Promise: Nobody loses a run.
TEST_F(CheckpointStoreTest, ARunThatHasLostItsCheckpointsIsNoNewRun) {
  const std::filesystem::path run = directory_ / "run";
  const CheckpointStore store(run / "checkpoints", 2);
  std::filesystem::create_directories(run);
  EXPECT_TRUE(CheckNotLost(run).ok()) << "it never had one";
  ASSERT_TRUE(Write(store, 3).ok());
  RememberCheckpoint(run, 3);
  EXPECT_TRUE(CheckNotLost(run).ok());
  std::filesystem::remove_all(run / "checkpoints/step_000003");
  const absl::Status lost = CheckNotLost(run);
  EXPECT_TRUE(absl::IsDataLoss(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()),
              ::testing::HasSubstr("step_000003 was there: put it back"));
  std::filesystem::rename(run / "trained_to", run / "checkpointed");  // As it was called.
  EXPECT_TRUE(absl::IsDataLoss(CheckNotLost(run)));
}

// With a full disk somebody deletes runs/NAME/checkpoint*.
// Promise: Nobody loses a run.
TEST_F(CheckpointStoreTest, NoGlobOfCheckpointsTakesTheMarkWithThem) {
  std::filesystem::create_directories(directory_);
  ASSERT_TRUE(Write(CheckpointStore(directory_ / "checkpoints", 2), 3).ok());
  RememberCheckpoint(directory_, 3);
  std::vector<std::filesystem::path> deleted;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().filename().string().starts_with("checkpoint")) deleted.push_back(entry.path());
  }
  ASSERT_FALSE(deleted.empty());
  for (const auto& path : deleted) std::filesystem::remove_all(path);
  EXPECT_TRUE(absl::IsDataLoss(CheckNotLost(directory_)));
}

// Promise: Nobody loses a run.
TEST_F(CheckpointStoreTest, WithoutTheMarkTheEndAndTheWeightsTellOfCheckpoints) {
  std::filesystem::create_directories(directory_ / "weights");
  std::ofstream(directory_ / "metrics.jsonl") << "{\"step\":3}\n";
  std::ofstream(directory_ / "steps.jsonl") << "{\"epoch\":1,\"step\":3}\n";
  using run::RunEnd;
  const auto lost_after = [&](RunEnd end, uint64_t step) {
    EXPECT_TRUE(run::WriteEnd(directory_, {.end = end, .step = step}).ok());
    return absl::IsDataLoss(CheckNotLost(directory_));
  };
  EXPECT_FALSE(lost_after(RunEnd::kFailed, 3)) << "the first checkpoint was not due";
  EXPECT_FALSE(lost_after(RunEnd::kInterrupted, 3)) << "stopped at once";
  EXPECT_FALSE(lost_after(RunEnd::kInterrupted, 0));
  EXPECT_TRUE(lost_after(RunEnd::kDone, 3));
  EXPECT_TRUE(lost_after(RunEnd::kByRule, 3));
  EXPECT_TRUE(lost_after(RunEnd::kRolledBack, 3));
  EXPECT_THAT(std::string(CheckNotLost(directory_).message()),
              ::testing::HasSubstr("step_000003 was there"));
  std::ofstream(directory_ / "weights/model") << "trained";
  EXPECT_TRUE(lost_after(RunEnd::kInterrupted, 3)) << "drained: weights come after a checkpoint";
  ASSERT_TRUE(run::ReserveEnd(directory_).ok());
  EXPECT_TRUE(absl::IsDataLoss(CheckNotLost(directory_))) << "a later start was killed";
}

TEST_F(CheckpointStoreTest, ARunsDirectoryThatWasMovedAwayIsNotMadeAgain) {
  const std::filesystem::path run = directory_ / "run";
  EXPECT_EQ(Write(CheckpointStore(run / "checkpoints", 2), 3).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

TEST_F(CheckpointStoreTest, EveryStartHasItsOwnEpoch) {
  std::filesystem::create_directories(directory_);
  for (uint64_t start = 1; start <= 3; ++start) {
    EXPECT_EQ(NextEpoch(directory_ / "epoch")->value, start);
  }
  std::ofstream(directory_ / "epoch") << "what";
  EXPECT_EQ(NextEpoch(directory_ / "epoch").status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace oxbow::learner
