// SPDX-License-Identifier: Apache-2.0
// Moments that ranks have written in pieces are the whole again, for any number of ranks, and ranks
// that do not share a directory are found out before they train.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/rl/trainer.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/learner/checkpoint/checkpointing.h"
#include "tests/testing/own_memory.h"
#include "tests/testing/scoped_directory.h"
#include "tests/testing/thread_ranks.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::learner {
namespace {

using ::oxbow::testing::ForgetPeakMemory;
using ::oxbow::testing::OwnMemory;
using parallel::ThreadWorld;
using ::testing::HasSubstr;
using State = std::map<std::string, at::Tensor>;

rl::TrainerOptions Options() {
  return {.sampling = {.sigmas = {1, 0.5, 0}, .sde = {true, false}},
          .shard_optimizer = true,
          .adamw = {.learning_rate = 1e-3}};
}

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_checkpoint()->set_keep(2);
  return config;
}

// Another number in every element.
State WholeState(int64_t length, double seed) {
  const at::Tensor count = at::arange(length, at::kFloat) + 1;
  return {{"adamw.first_moment", (count * seed).sin()},
          {"adamw.second_moment", (count * seed).cos().square()},
          {"counters", at::tensor(std::vector<int64_t>{14, 7}, at::kLong)}};
}

bool Equal(const State& a, const State& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    if (!b.contains(name) || !at::equal(tensor, b.at(name))) return false;
  }
  return true;
}

class OptimizerPiecesTest : public ::testing::Test {
 protected:
  static int64_t Length() {
    rl::ToyPolicy policy;
    return policy.parameters().flat().numel();
  }

  // A checkpoint that `size` ranks with this state write together.
  absl::Status Write(int size, uint64_t steps, const State& state) {
    absl::Mutex mutex;
    std::map<std::string, FileDigest> written;
    CheckpointCopy copy;
    EXPECT_TRUE(checkpointing_.store().Prepare(steps).ok());
    ThreadWorld(size).Run([&](parallel::Ranks& ranks) {
      rl::ToyPolicy policy;
      rl::Trainer trainer(Options(), policy, ranks);
      EXPECT_EQ(trainer.has_pieces(), size > 1);
      EXPECT_TRUE(trainer.LoadState(state).ok());
      if (ranks.rank() == 0) {
        copy.flat.emplace("weights.safetensors", CopyOf(policy.parameters()));
        Checkpointing::AddTrainerState(trainer, 0, size, copy);
        return;
      }
      const auto digest = WritePieceOf(ranks.rank(), size, directory_.path(), steps,
                                       {.flat = trainer.CopyMoments(), .small = {}});
      ASSERT_TRUE(digest.ok()) << digest.status();
      absl::MutexLock lock(&mutex);
      written[PieceName(ranks.rank(), size)] = *digest;
    });
    return checkpointing_
        .Write({.committed_steps = steps}, std::move(copy), {}, [&] { return written; })
        .status();
  }

  absl::StatusOr<State> Read() const {
    const auto checkpoint = checkpointing_.LoadNewest();
    if (!checkpoint.ok()) return checkpoint.status();
    return checkpointing_.TrainerState(*checkpoint);
  }

  const oxbow::testing::ScopedDirectory directory_{oxbow::testing::ScopedDirectory::Memory()};
  const Checkpointing checkpointing_{directory_.path(), Config()};
};

// Promise: Each rank writes its own moments. Without `whole_optimizer` no rank gathers the
// moments: each writes and hashes its piece, the manifest lists all, and a checkpoint without one
// of them is none. Any number of ranks loads the pieces of any other, bit for bit, and checkpoints
// of older versions, which have whole moments. Writing takes at most a tenth more memory than what
// the rank holds. Ranks that do not share the run directory are refused at the start, by name.
TEST_F(OptimizerPiecesTest, PiecesOfAnyNumberOfRanksAreTheWholeForAnyOther) {
  for (int size = 1; size <= 5; ++size) {
    const State state = WholeState(Length(), 0.1 + size);
    ASSERT_TRUE(Write(size, static_cast<uint64_t>(size), state).ok());
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(Equal(*read, state)) << size << " ranks";
    for (const int other : {1, 2, 3, 4}) {
      ThreadWorld(other).Run([&](parallel::Ranks& ranks) {
        rl::ToyPolicy policy;
        rl::Trainer trainer(Options(), policy, ranks);
        ASSERT_TRUE(trainer.TakeStateOfRankZero(ranks.rank() == 0 ? *read : State()).ok());
        const auto again = trainer.State();
        ASSERT_TRUE(again.ok()) << again.status();
        EXPECT_TRUE(Equal(*again, state)) << size << " ranks, then " << other;
      });
    }
  }
}

// Promise: Each rank writes its own moments.
TEST_F(OptimizerPiecesTest, APieceThatIsMissingIsNamedAndADamagedOneCostsItsCheckpoint) {
  const State first = WholeState(Length(), 0.3);
  ASSERT_TRUE(Write(3, 1, first).ok());
  ASSERT_TRUE(Write(3, 2, WholeState(Length(), 0.7)).ok());
  Checkpoint checkpoint = *checkpointing_.LoadNewest();
  EXPECT_EQ(checkpoint.files.erase(PieceName(1, 3)), 1u);
  const absl::Status missing = checkpointing_.TrainerState(checkpoint).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("optimizer.rank1-of-3.safetensors"));

  const std::filesystem::path piece = checkpoint.directory / PieceName(2, 3);
  std::filesystem::resize_file(piece, std::filesystem::file_size(piece) - 1);
  EXPECT_TRUE(Equal(*Read(), first)) << "the one before";
}

// Promise: Each rank writes its own moments.
TEST_F(OptimizerPiecesTest, ARankThatCouldNotWriteLeavesTheCheckpointBefore) {
  const State first = WholeState(Length(), 0.3);
  ASSERT_TRUE(Write(2, 1, first).ok());
  ASSERT_TRUE(checkpointing_.store().Prepare(2).ok());
  const auto written = checkpointing_.Write(
      {.committed_steps = 2}, {}, {}, []() -> absl::StatusOr<std::map<std::string, FileDigest>> {
        return absl::UnavailableError("learner rank 1: disk is full");
      });
  EXPECT_THAT(std::string(written.status().message()), HasSubstr("rank 1: disk is full"));
  EXPECT_TRUE(Equal(*Read(), first));
}

// Promise: Each rank writes its own moments.
TEST_F(OptimizerPiecesTest, RanksWithAnotherDirectoryAreNamedOnEveryRank) {
  const auto check = [&](const std::vector<int>& elsewhere) {
    std::vector<absl::Status> said(3);
    ThreadWorld(3).Run([&](parallel::Ranks& ranks) {
      const bool other =
          std::find(elsewhere.begin(), elsewhere.end(), ranks.rank()) != elsewhere.end();
      said[static_cast<size_t>(ranks.rank())] = CheckDirectoryIsShared(
          ranks, other ? directory_.path() / "elsewhere" : directory_.path());
    });
    return said;
  };
  for (const absl::Status& status : check({})) EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : check({2})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 does not see"));
  }
}

// 128 MiB, to files in memory that counts for no process.
// Promise: Each rank writes its own moments.
TEST_F(OptimizerPiecesTest, WritingTakesATenthMoreThanThePieceAndJoiningOnePieceMore) {
  constexpr int64_t kValues = int64_t{16} << 20;
  constexpr double kBytes = 2 * 4.0 * kValues;
  TensorCopies piece;
  for (const char* name : {"adamw.first_moment", "adamw.second_moment"}) {
    piece.flat.emplace(name, at::full({kValues}, 0.25F));
  }
  ASSERT_TRUE(checkpointing_.store().Prepare(1).ok());
  const int64_t held = ForgetPeakMemory();
  std::map<std::string, FileDigest> written;
  written[PieceName(1, 2)] = *WritePieceOf(1, 2, directory_.path(), 1, piece);
  CheckpointCopy copy;
  copy.tensors[PieceName(0, 2)] = std::move(piece);
  ASSERT_TRUE(
      checkpointing_.Write({.committed_steps = 1}, std::move(copy), {}, [&] { return written; })
          .ok());
  EXPECT_LE(static_cast<double>(OwnMemory("VmHWM") - held), 0.1 * kBytes) << "no further copy";

  const Checkpoint checkpoint = *checkpointing_.LoadNewest();
  const int64_t before = ForgetPeakMemory();
  const auto moments = JoinPieces(checkpoint);
  ASSERT_TRUE(moments.ok()) << moments.status();
  EXPECT_EQ(moments->at("adamw.first_moment").numel(), 2 * kValues);
  // Beside the whole, one moment of one piece is mapped at a time.
  EXPECT_LE(static_cast<double>(OwnMemory("VmHWM") - before), 2.1 * kBytes + kBytes / 2);
}

}  // namespace
}  // namespace oxbow::learner
