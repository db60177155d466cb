// SPDX-License-Identifier: Apache-2.0
// A store serves one run, and of that run the newest start.
#include "services/buffer/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

using ::testing::HasSubstr;

const char kMine[] = "digits-0000000000000001";
const char kOther[] = "digits-0000000000000002";

class OwnershipTest : public ::testing::Test {
 protected:
  OwnershipTest() { Open(); }
  void Open() {
    store_.reset();
    store_ = ReplayStore::Open({.directory = directory_.path()}).value();
  }
  absl::Status Offer(const Caller& caller, uint64_t id) {
    return store_->Offer(caller, {TestEntry(id, id, 0, 1)}).status();
  }
  uint64_t entries() const { return store_->Info().entries; }
  int Asides() const {
    int count = 0;
    for (const auto& child : std::filesystem::directory_iterator(directory_.path())) {
      count += child.path().filename().string().starts_with("aside-") ? 1 : 0;
    }
    return count;
  }

  const testing::ScopedDirectory directory_{testing::ScopedDirectory::Memory()};
  std::unique_ptr<ReplayStore> store_;
};

// Promise: A buffer belongs to one run. A buffer takes changes from one run, and of that run from
// its newest start. The learner of another run, of an earlier start or with another number of
// shards ends at once with exit code 2 and one line that says whose buffer it is. Entries that a
// start takes out are copied aside until the next checkpoint. An absurd epoch or step is refused
// and changes nothing.
TEST_F(OwnershipTest, EveryCallOfAnotherRunIsRefusedAndChangesNothing) {
  ASSERT_TRUE(Offer({Epoch(3), kMine}, 1).ok());
  for (const bool reopened : {false, true}) {
    if (reopened) Open();
    for (const Caller& other :
         {Caller{Epoch(1), kOther}, Caller{Epoch(9), kOther}, Caller{Epoch(9)}}) {
      for (const absl::Status& status :
           {Offer(other, 2), store_->Draw(other, LearnerStep(1), 1, 1).status(),
            store_->Advance(other, LearnerStep(1), {}, {}).status(),
            store_->Checkpoint(other, "a", 1), store_->Restore(other, "")}) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(kMine)) << "whose it is";
        EXPECT_THAT(
            std::string(status.message()),
            HasSubstr(other.run.empty() ? "learner of the buffer's version" : "--take-buffer"))
            << "what to do";
        EXPECT_EQ(status.message().find('\n'), std::string::npos);
      }
    }
    EXPECT_EQ(entries(), 1u);
    EXPECT_EQ(store_->Info().epoch, Epoch(3));
  }
  EXPECT_TRUE(Offer({Epoch(3), kMine}, 3).ok());
}

TEST_F(OwnershipTest, ASecondStartOfOneCountIsThatOfACopiedDirectoryAndRefused) {
  const Caller caller{Epoch(3), kMine};
  const auto restore = [&](uint64_t start, const std::string& take_from = "") {
    return store_->Restore(caller, "", {.take_from = take_from, .start = start});
  };
  ASSERT_TRUE(restore(11).ok());
  EXPECT_TRUE(restore(11).ok()) << "its answer was lost";
  const absl::Status copy = restore(12);
  EXPECT_EQ(copy.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(copy.message()),
              ::testing::AllOf(HasSubstr(kMine), HasSubstr("its directory was copied"),
                               HasSubstr("--take-buffer")));
  ASSERT_TRUE(Offer(caller, 1).ok());
  EXPECT_TRUE(store_->Restore({Epoch(4), kMine}, "", {.start = 13}).ok()) << "the next start";
  EXPECT_TRUE(store_->Restore({Epoch(4), kMine}, "", {.take_from = kMine, .start = 14}).ok());
}

TEST_F(OwnershipTest, AStoreWithoutOwnerIsTheFirstRunsThatRestores) {
  ASSERT_TRUE(Offer(Epoch(2), 1).ok());  // As a program that knows no uids did.
  ASSERT_TRUE(store_->Checkpoint(Epoch(2), "old", 1).ok());
  ASSERT_TRUE(Offer(Epoch(2), 2).ok());
  ASSERT_TRUE(store_->Restore({Epoch(3), kMine}, "old").ok());
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(store_->Info().owner.run, kMine);
  EXPECT_TRUE(absl::IsFailedPrecondition(Offer({Epoch(4), kOther}, 3)));
  ASSERT_TRUE(store_->Restore({Epoch(4), kMine}, "old").ok()) << "the checkpoint is still its own";
}

TEST_F(OwnershipTest, ARunTakesABufferOnlyFromTheOwnerItNames) {
  ASSERT_TRUE(Offer({Epoch(5), kMine}, 1).ok());
  ASSERT_TRUE(store_->Checkpoint({Epoch(5), kMine}, "step", 1).ok());
  const Caller other{Epoch(1), kOther};
  EXPECT_TRUE(absl::IsFailedPrecondition(store_->Restore(other, "", {.take_from = "unnamed"})));
  EXPECT_EQ(entries(), 1u);
  ASSERT_TRUE(store_->Restore(other, "step", {.take_from = kMine}).ok());
  EXPECT_EQ(entries(), 0u) << "entries of another run do not mix with its own";
  EXPECT_EQ(Asides(), 2) << "the content and the checkpoint";
  EXPECT_EQ(store_->Info().epoch, Epoch(1));
  ASSERT_TRUE(Offer(other, 2).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Offer({Epoch(5), kMine}, 3)));
  // The flag of the start stays when the learner starts again.
  ASSERT_TRUE(
      store_->Restore({Epoch(2), kOther}, "", {.step = LearnerStep(1), .take_from = kMine}).ok());
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OwnershipTest, AnOlderStartIsFencedUntilItTakesItsOwnBuffer) {
  ASSERT_TRUE(Offer({Epoch(5), kMine}, 1).ok());
  const Caller older{Epoch(2), kMine};
  const absl::Status fenced = store_->Restore(older, "", {.step = LearnerStep(1)});
  EXPECT_TRUE(absl::IsAborted(fenced));
  EXPECT_THAT(std::string(fenced.message()), HasSubstr("start 2"));
  EXPECT_THAT(std::string(fenced.message()), HasSubstr("start 5"));
  ASSERT_TRUE(store_->Restore(older, "", {.step = LearnerStep(1), .take_from = kMine}).ok());
  EXPECT_EQ(entries(), 1u) << "its own entries stay";
  EXPECT_TRUE(Offer(older, 2).ok());
}

// Promise: A buffer belongs to one run.
TEST_F(OwnershipTest, AnotherNumberOfShardsIsRefused) {
  const Caller mine{Epoch(1), kMine};
  ASSERT_TRUE(store_->Restore(mine, "", {.shards = 3, .shard = 1}).ok());
  ASSERT_TRUE(Offer(mine, 1).ok());
  Open();
  for (const RestoreFor& wanted :
       {RestoreFor{.shards = 2, .shard = 1}, RestoreFor{.shards = 3, .shard = 0}}) {
    const absl::Status status = store_->Restore({Epoch(2), kMine}, "", wanted);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("shard 1 of 3"));
    EXPECT_EQ(entries(), 1u);
  }
  EXPECT_TRUE(
      store_->Restore({Epoch(2), kMine}, "", {.step = LearnerStep(1), .shards = 3, .shard = 1})
          .ok());
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(store_
                  ->Restore({Epoch(3), kMine}, "",
                            {.step = LearnerStep(1), .shards = 2, .shard = 1, .take_from = kMine})
                  .ok());
  EXPECT_EQ(entries(), 0u) << "its prompts may live elsewhere";
}

// One absurd number must not make all calls to come too old.
// Promise: A buffer belongs to one run.
TEST_F(OwnershipTest, AnEpochOrStepFarAheadIsRefusedAndForgotten) {
  const Caller mine{Epoch(1), kMine};
  ASSERT_TRUE(store_->Advance(mine, LearnerStep(9), {}, {}).ok());
  for (const uint64_t far : {2 + kAheadMax, ~uint64_t{0}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Offer({Epoch(far), kMine}, 1)));
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Restore({Epoch(far), kMine}, "")));
  }
  for (const uint64_t far : {11 + kAheadMax, ~uint64_t{0}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Advance(mine, LearnerStep(far), {}, {}).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Draw(mine, LearnerStep(far), 1, 1).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Restore(mine, "", {.step = LearnerStep(far)})));
    const auto born = store_->Offer(mine, {TestEntry(7, 7, far, 1)});
    ASSERT_TRUE(born.ok());
    EXPECT_EQ(born->results[0].outcome, Outcome::kRejectedInvalid);
  }
  EXPECT_EQ(store_->Info().epoch, Epoch(1));
  EXPECT_EQ(store_->Info().step, LearnerStep(10));
  EXPECT_TRUE(store_->Advance({Epoch(1 + kAheadMax), kMine}, LearnerStep(10), {}, {}).ok());
}

}  // namespace
}  // namespace oxbow::buffer
