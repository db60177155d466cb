// SPDX-License-Identifier: Apache-2.0
// Rounds over a broadcast group that is played back: what rank 0 did, a member is given, right or
// wrong.
#include "services/weights/broadcast_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "services/weights/snapshot_maker.h"

namespace oxbow::weights {
namespace {

constexpr uint64_t kBudget = 1 << 30;

// A record of what went round.
struct Tape {
  std::string told;
  std::vector<std::string> pieces;
  bool met = false;
};

class Recorder final : public BroadcastGroup {
 public:
  explicit Recorder(Tape& tape) : tape_(tape) {}
  absl::Status Broadcast(std::string& text) override {
    tape_.told = text;
    return absl::OkStatus();
  }
  std::unique_ptr<Transfer> Start(std::span<char> bytes, std::shared_ptr<const void>) override {
    tape_.pieces.emplace_back(bytes.data(), bytes.size());
    return std::make_unique<Arrived>();
  }
  absl::Status Barrier() override {
    tape_.met = true;
    return absl::OkStatus();
  }
  void Abort(const std::string&) override {}

 private:
  class Arrived final : public Transfer {
    absl::Status Wait() override { return absl::OkStatus(); }
  };
  Tape& tape_;
};

// Gives a tape's bytes when they are waited for, and breaks off where the tape ends.
class Player final : public BroadcastGroup {
 public:
  explicit Player(const Tape& tape) : tape_(tape) {}
  absl::Status Broadcast(std::string& text) override {
    text = tape_.told;
    return absl::OkStatus();
  }
  std::unique_ptr<Transfer> Start(std::span<char> bytes, std::shared_ptr<const void>) override {
    under_way_max = std::max(under_way_max, ++under_way_);
    return std::make_unique<Coming>(*this, bytes, next_++);
  }
  absl::Status Barrier() override {
    met = true;
    return absl::OkStatus();
  }
  void Abort(const std::string&) override {}

  bool met = false;
  int under_way_max = 0;

 private:
  class Coming final : public Transfer {
   public:
    Coming(Player& player, std::span<char> bytes, size_t index)
        : player_(player), bytes_(bytes), index_(index) {}
    absl::Status Wait() override {
      --player_.under_way_;
      if (index_ >= player_.tape_.pieces.size()) return absl::UnavailableError("end of tape");
      const std::string& piece = player_.tape_.pieces[index_];
      EXPECT_EQ(piece.size(), bytes_.size());
      std::copy(piece.begin(), piece.end(), bytes_.begin());
      return absl::OkStatus();
    }

   private:
    Player& player_;
    const std::span<char> bytes_;
    const size_t index_;
  };
  const Tape& tape_;
  int under_way_ = 0;
  size_t next_ = 0;
};

// A frozen tensor, and trained ones of many sizes whose bytes are the version's own.
Snapshot Version(uint64_t version, uint64_t chunk_bytes) {
  std::mt19937 random(static_cast<unsigned>(version));
  const auto tensor = [&](size_t size) {
    std::string data(size, '\0');
    for (char& byte : data) byte = static_cast<char>(random());
    return io::TensorBytes{io::DType::kU8, {static_cast<int64_t>(size)}, std::move(data)};
  };
  TensorBytesByName trained;
  for (const size_t size : {1, 7, 100, 4000, 3, 90'000, 64, 2'500'000, 12, 1'100'000}) {
    trained[absl::StrCat("trained", trained.size())] = tensor(size);
  }
  const io::TensorBytes frozen{io::DType::kU8, {5000}, std::string(5000, 'f')};
  return MakeSnapshot({Epoch(1), PolicyVersion(version), LearnerStep(version)},
                      {{"frozen", frozen}}, trained, chunk_bytes);
}

class BroadcastRoundTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  BroadcastRoundTest() {
    EXPECT_TRUE(added_);
    Recorder recorder(tape_);
    order_ = NewChunks(after_.manifest, before_.manifest);
    const absl::Status sent =
        SendRound(recorder, PolicyVersion(2), order_, after_.chunks, [this](uint64_t bytes) {
          sent_ += bytes;
          return absl::OkStatus();
        });
    EXPECT_TRUE(sent.ok() && tape_.met);
  }
  absl::Status Receive(uint64_t budget = kBudget) {
    Player player(tape_);
    const absl::Status status = ReceiveRound(player, budget, download_, received_);
    download_.Settle();
    EXPECT_LE(player.under_way_max, 2);
    EXPECT_EQ(player.met, status.ok());
    return status;
  }

  const Snapshot before_ = Version(1, GetParam());
  const Snapshot after_ = Version(2, GetParam());
  ChunkStore store_{2, kBudget};
  const bool added_ = store_.Add(before_).ok();  // Before the download looks.
  Tape tape_;
  std::vector<ChunkSize> order_;
  uint64_t sent_ = 0;
  Download download_ = *Download::Start(after_.manifest, store_);
  ReceivedRound received_;
};

TEST_P(BroadcastRoundTest, OnlyWhatChangedGoesRoundAndAllOfItArrives) {
  EXPECT_EQ(download_.Lacking().size(), order_.size());
  ASSERT_TRUE(Receive().ok());
  EXPECT_TRUE(download_.complete());
  EXPECT_EQ(received_.bytes, sent_);
  EXPECT_EQ(download_.bytes(), sent_);
  for (const auto& [hash, chunk] : after_.chunks) {
    EXPECT_TRUE(*download_.verified().at(hash) == *chunk);
    EXPECT_TRUE(store_.Find(hash) != nullptr);
  }
}

// Promise: A broadcast can only save time.
TEST_P(BroadcastRoundTest, AChunkThatIsNotItsHashIsLeftLacking) {
  for (std::string& piece : tape_.pieces) {
    if (&piece == &tape_.pieces.front() || &piece == &tape_.pieces.back()) piece[0] ^= 1;
  }
  ASSERT_TRUE(Receive().ok());
  EXPECT_EQ(received_.corrupt, 2u);
  EXPECT_EQ(download_.lacking(), 2u);
  EXPECT_EQ(download_.Request().chunk_sha256_size(), 2);
  for (const auto& [hash, chunk] : download_.verified()) {
    EXPECT_TRUE(*chunk == *after_.chunks.at(hash));
  }
}

TEST_P(BroadcastRoundTest, WhatCameBeforeTheEndIsKept) {
  tape_.pieces.pop_back();
  EXPECT_TRUE(absl::IsUnavailable(Receive()));
  EXPECT_FALSE(download_.complete());
  uint64_t kept = 0;
  for (const std::string& piece : tape_.pieces) kept += piece.size();
  EXPECT_EQ(download_.bytes(), kept);
}

TEST_P(BroadcastRoundTest, AMemberThatLacksNothingHashesNothing) {
  ASSERT_TRUE(Receive().ok());
  Download again = *Download::Start(after_.manifest, store_);
  for (std::string& piece : tape_.pieces) piece[0] ^= 1;
  Player player(tape_);
  ReceivedRound received;
  ASSERT_TRUE(ReceiveRound(player, kBudget, again, received).ok());
  EXPECT_EQ(received.corrupt, 0u);
  EXPECT_EQ(again.bytes(), 0u);
}

TEST_P(BroadcastRoundTest, ARoundBeyondTheBudgetIsRefusedBeforeMemoryIsTaken) {
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(/*budget=*/sent_ - 1)));
  EXPECT_EQ(received_.bytes, 0u);
  v1::BroadcastRound round;
  round.add_chunks()->set_bytes(kSnapshotChunkBytesMax + 1);
  tape_.told = round.SerializeAsString();
  EXPECT_TRUE(absl::IsInvalidArgument(Receive()));
  tape_.told = "\xff";
  EXPECT_TRUE(absl::IsInvalidArgument(Receive()));
}

TEST_P(BroadcastRoundTest, ALearnerThatGivesUpSaysWhy) {
  Tape tape;
  Recorder recorder(tape);
  const absl::Status sent = SendRound(recorder, PolicyVersion(2), order_, after_.chunks,
                                      [](uint64_t) { return absl::DeadlineExceededError("slow"); });
  EXPECT_EQ(sent, absl::DeadlineExceededError("slow"));
  EXPECT_FALSE(tape.met);
}

INSTANTIATE_TEST_SUITE_P(ChunkBytes, BroadcastRoundTest,
                         ::testing::Values(1000, 300'000, 700'000, kSnapshotChunkBytes,
                                           kSnapshotChunkBytesMax));

TEST(PieceTest, LawsHoldForAnyChunks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    const uint64_t bytes_max = 1 + random() % 1000;
    std::vector<ChunkSize> chunks(random() % 50);
    for (ChunkSize& chunk : chunks) chunk.bytes = 1 + random() % 1500;
    size_t next = 0;
    uint64_t before = 0;
    for (const Piece& piece : PackPieces(chunks, bytes_max)) {
      EXPECT_EQ(piece.first, next);
      ASSERT_GE(piece.count, 1u);
      uint64_t bytes = 0;
      for (size_t i = 0; i < piece.count; ++i) bytes += chunks[next++].bytes;
      EXPECT_EQ(piece.bytes, bytes);
      EXPECT_TRUE(piece.count == 1 || bytes <= bytes_max);
      EXPECT_TRUE(piece.first == 0 || before + chunks[piece.first].bytes > bytes_max);
      before = bytes;
    }
    EXPECT_EQ(next, chunks.size());
  }
}

}  // namespace
}  // namespace oxbow::weights
