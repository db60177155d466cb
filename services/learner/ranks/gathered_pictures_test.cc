// SPDX-License-Identifier: Apache-2.0
// Pictures of all ranks are those that were sent, whatever the order in which ranks send them, and
// nothing else ends in an evaluation.
#include "services/learner/ranks/gathered_pictures.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;
using Frames = GatheredPictures::Frames;
using Piece = v1::PicturePiece;

constexpr absl::Duration kWaitMax = absl::Seconds(20);

Frames RandomPicture(std::mt19937& random) {
  Frames frames(1 + random() % 3);
  const int height = 1 + static_cast<int>(random() % 900);
  const int width = 1 + static_cast<int>(random() % 900);
  const int channels = random() % 2 == 0 ? 1 : 3;
  for (Image8& frame : frames) {
    frame = {.width = width, .height = height, .channels = channels, .pixels = {}};
    frame.pixels.resize(static_cast<size_t>(height * width * channels));
    for (uint8_t& pixel : frame.pixels) pixel = static_cast<uint8_t>(random());
  }
  return frames;
}

// Shares of 1 to 5 ranks, some empty, of which rank 0 has the first places.
std::vector<parallel::Share> RandomShares(std::mt19937& random) {
  std::vector<parallel::Share> shares(1 + random() % 5);
  size_t end = 0;
  for (parallel::Share& share : shares) {
    share.begin = end;
    share.end = end += random() % 4;
  }
  return shares;
}

// Promise: The number of ranks changes no number.
TEST(GatheredPicturesTest, PicturesAreThoseThatWereSentInAnyOrderOfRanks) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    GatheredPictures gathered;
    const uint64_t before = gathered.Begin(RandomShares(random));
    const std::vector<parallel::Share> shares = RandomShares(random);
    const uint64_t number = gathered.Begin(shares);
    ASSERT_NE(number, before);
    std::vector<Frames> expected;
    std::vector<std::vector<Piece>> waiting(shares.size());  // By rank.
    size_t left = 0;
    for (size_t rank = 1; rank < shares.size(); ++rank) {
      for (size_t place = shares[rank].begin; place < shares[rank].end; ++place) {
        expected.push_back(RandomPicture(random));
        for (Piece& piece : rpc::InPieces(number, place, expected.back())) {
          EXPECT_LE(piece.ByteSizeLong(), (size_t{1} << 20) + 64);
          waiting[rank].push_back(std::move(piece));
          ++left;
        }
      }
    }
    std::vector<size_t> sent(shares.size());
    while (left > 0) {
      const size_t rank = random() % shares.size();
      if (sent[rank] == waiting[rank].size()) continue;
      Piece late = waiting[rank][sent[rank]];
      late.set_evaluation(before);
      gathered.Add(static_cast<uint32_t>(rank), late);
      EXPECT_TRUE(gathered.running());
      gathered.Add(static_cast<uint32_t>(rank), waiting[rank][sent[rank]++]);
      --left;
    }
    const auto pictures = gathered.Await(absl::ZeroDuration());
    ASSERT_TRUE(pictures.ok()) << pictures.status();
    EXPECT_TRUE(*pictures == expected);
    EXPECT_FALSE(gathered.running());
    EXPECT_FALSE(gathered.End(absl::CancelledError("late")).has_value());
  }
}

TEST(GatheredPicturesTest, APieceThatWasNotAskedForEndsTheEvaluationWithItsRank) {
  const Frames frames = {{.width = 2, .height = 1, .channels = 3, .pixels = {1, 2, 3, 4, 5, 6}}};
  const auto end_of = [&](uint32_t rank, const std::function<void(Piece&)>& change) {
    GatheredPictures gathered;
    Piece piece = rpc::InPieces(gathered.Begin({{0, 1}, {1, 2}, {2, 4}}), 2, frames).front();
    change(piece);
    gathered.Add(rank, piece);
    return std::string(gathered.Await(absl::ZeroDuration()).status().message());
  };
  EXPECT_THAT(end_of(2, [](Piece&) {}), HasSubstr("did not come: 1, 2"));
  EXPECT_THAT(end_of(1, [](Piece&) {}), HasSubstr("learner rank 1 sent a picture"));
  EXPECT_THAT(end_of(0, [](Piece&) {}), HasSubstr("learner rank 0 sent a picture"));
  EXPECT_THAT(end_of(7, [](Piece&) {}), HasSubstr("learner rank 7 sent a picture"));
  EXPECT_THAT(end_of(2, [](Piece& piece) { piece.set_place(3); }), HasSubstr("place 3"));
  EXPECT_THAT(end_of(2, [](Piece& piece) { piece.set_channels(4); }), HasSubstr("channels: 4"));
  EXPECT_THAT(end_of(2, [](Piece& piece) { piece.set_height(0); }), HasSubstr("no size"));
  EXPECT_THAT(end_of(2, [](Piece& piece) { piece.set_width(1 << 30); }), HasSubstr("no size"));
  EXPECT_THAT(end_of(2, [](Piece& piece) { piece.set_width(1); }), HasSubstr("more bytes"));
  EXPECT_THAT(end_of(2, [](Piece& piece) { piece.set_error("no room"); }),
              HasSubstr("learner rank 2: no room"));
}

TEST(GatheredPicturesTest, TheFirstEndIsTheReasonAndTheNextEvaluationHasNone) {
  GatheredPictures gathered;
  EXPECT_FALSE(gathered.End(absl::CancelledError("before any")).has_value());
  const uint64_t number = gathered.Begin({{0, 1}, {1, 2}});
  EXPECT_EQ(gathered.End(absl::UnavailableError("rank 1 hung up")), number);
  EXPECT_EQ(gathered.End(absl::CancelledError("drained")), number);
  EXPECT_FALSE(gathered.running());
  EXPECT_EQ(gathered.Await(kWaitMax).status(), absl::UnavailableError("rank 1 hung up"));
  gathered.Begin({{0, 1}});
  EXPECT_TRUE(gathered.Await(absl::ZeroDuration()).ok());
}

}  // namespace
}  // namespace oxbow::learner
