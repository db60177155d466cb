// SPDX-License-Identifier: Apache-2.0
// Media on their way from the client to a scorer: whatever the transport and however large, the
// scorer sees what was sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <random>

#include "io/image.h"
#include "rpc/server.h"
#include "services/reward/reward_client.h"
#include "services/reward/reward_service.h"
#include "services/reward/score_call.h"
#include "telemetry/metrics.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::reward {
namespace {

using ::testing::HasSubstr;

Image8 Noise(int width, int height, int channels, uint32_t seed) {
  std::mt19937 generator(seed);
  Image8 image{width, height, channels, {}};
  image.pixels.resize(static_cast<size_t>(width) * height * channels);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(generator());
  return image;
}

Image8 Smooth(int width, int height) {
  Image8 image{width, height, 3, {}};
  for (int i = 0; i < width * height * 3; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(i / 3 % width * 250 / width));
  }
  return image;
}

RewardFacts KeepingFacts(bool groupwise = false, uint32_t frames_every = 1) {
  return {.name = "keeps",
          .value_max = 100,
          .groupwise = groupwise,
          .identity = "keeps/1",
          .batch_max = 8,
          .videos = true,
          .frames_every = frames_every};
}

// Keeps the media that it is given; scores are their numbers of frames.
class KeepingScorer final : public Scorer {
 public:
  explicit KeepingScorer(RewardFacts facts) : facts_(std::move(facts)) {}
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    std::vector<absl::StatusOr<Score>> scores;
    const std::lock_guard lock(mutex_);
    for (const Item& item : items) {
      media_.emplace_back(item.frames.begin(), item.frames.end());
      scores.emplace_back(Score{.value = static_cast<double>(item.frames.size())});
    }
    return scores;
  }
  std::vector<std::vector<Image8>> media() {
    const std::lock_guard lock(mutex_);
    return media_;
  }

 private:
  const RewardFacts facts_;
  std::mutex mutex_;
  std::vector<std::vector<Image8>> media_;
};

// A server of that scorer, and a client of it.
struct Served {
  explicit Served(v1::PictureTransport transport = v1::PICTURE_TRANSPORT_RAW,
                  bool groupwise = false, std::map<std::string, std::string> identities = {})
      : Served({KeepingFacts(groupwise)}, transport, std::move(identities)) {}
  explicit Served(const std::vector<RewardFacts>& rewards,
                  v1::PictureTransport transport = v1::PICTURE_TRANSPORT_RAW,
                  std::map<std::string, std::string> identities = {})
      : panel([&] {
          std::vector<std::unique_ptr<Scorer>> scorers;
          for (const RewardFacts& facts : rewards) {
            scorers.push_back(std::make_unique<KeepingScorer>(facts));
          }
          return scorers;
        }()),
        metrics(registry, panel),
        service({.batch_max = 8}, panel, metrics, Clock::Steady()),
        server(rpc::Server::Start({}, {&service}).value()),
        client(RewardClient::Create({.endpoints = {server->endpoint()},
                                     .identities = std::move(identities),
                                     .transport = transport})) {}
  std::vector<std::vector<Image8>> seen(size_t scorer = 0) const {
    return dynamic_cast<KeepingScorer&>(*panel.scorers()[scorer]).media();
  }
  ScorerPanel panel;
  prometheus::Registry registry;
  RewardMetrics metrics;
  RewardService service;
  std::unique_ptr<rpc::Server> server;
  absl::StatusOr<std::unique_ptr<RewardClient>> client;
};

// Promise: Media are bounded before they come.
TEST(RewardMediaTest, AClipOf97MegabytesPasses) {
  const Served served;
  ASSERT_TRUE(served.client.ok()) << served.client.status();
  std::vector<Image8> frames;
  for (uint32_t i = 0; i < 81; ++i) frames.push_back(Noise(832, 480, 3, i));
  const auto scores = (*served.client)->ScoreMedia("p", "", {frames});
  ASSERT_TRUE(scores[0].ok()) << scores[0].status();
  EXPECT_EQ(scores[0]->at("keeps"), 81);
  ASSERT_EQ(served.seen().size(), 1);
  EXPECT_TRUE(served.seen().front() == frames);
}

std::vector<Image8> EveryOf(const std::vector<Image8>& frames, size_t n) {
  std::vector<Image8> every;
  for (size_t i = 0; i < frames.size(); i += n) every.push_back(frames[i]);
  return every;
}

// Promise: A video is a video everywhere.
TEST(RewardMediaTest, OfAClipTheFramesTravelThatItsRewardReads) {
  const Served served({KeepingFacts(false, 4)});
  ASSERT_TRUE(served.client.ok()) << served.client.status();
  std::vector<Image8> frames;
  for (uint32_t i = 0; i < 81; ++i) frames.push_back(Noise(832, 480, 3, i));
  const auto scores = (*served.client)->ScoreMedia("p", "", {frames, frames});
  for (const auto& score : scores) {
    ASSERT_TRUE(score.ok()) << score.status();
    EXPECT_EQ(score->at("keeps"), 21);
  }
  EXPECT_TRUE(served.seen().at(1) == EveryOf(frames, 4));
}

// Frames that one of them reads travel once, and each sees its own.
// Promise: A video is a video everywhere.
TEST(RewardMediaTest, RewardsOfOneServerShareTheFramesThatTravel) {
  RewardFacts sixth = KeepingFacts(false, 6), pictures = KeepingFacts(false, 8);
  sixth.name = "sixth";
  pictures.name = "pictures";
  pictures.videos = false;
  const Served served({KeepingFacts(false, 4), sixth, pictures});
  ASSERT_TRUE(served.client.ok()) << served.client.status();
  std::vector<Image8> frames;
  for (uint32_t i = 0; i < 26; ++i) frames.push_back(Noise(4, 3, 3, i));
  const auto scores = (*served.client)->ScoreMedia("p", "", {frames});
  ASSERT_TRUE(scores[0].ok()) << scores[0].status();
  EXPECT_EQ(*scores[0], (Scores{{"keeps", 7}, {"sixth", 5}, {"pictures", 1}}));
  EXPECT_TRUE(served.seen(0).front() == EveryOf(frames, 4));
  EXPECT_TRUE(served.seen(1).front() == EveryOf(frames, 6));
  ASSERT_EQ(served.seen(2).size(), 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(served.seen(2)[i].front() == frames[8 * i]);
}

// Promise: A video is a video everywhere.
TEST(RewardMediaTest, AClipOverTheLimitsIsOneClearLine) {
  const Served served;
  ASSERT_TRUE(served.client.ok()) << served.client.status();
  const std::vector<Image8> clip(4097, Noise(1, 1, 1, 1));
  const auto scores = (*served.client)->ScoreMedia("p", "", {clip});
  EXPECT_EQ(scores[0].status().message(),
            "video is too large to send: its rewards read 4097 of 4097 frames, 4097 bytes, over "
            "the limits of 4096 frames and 268435456 bytes: make it shorter or smaller, or use "
            "rewards that read fewer frames");
}

// A server that says nothing of frames gets all of them, also beside one that does.
// Promise: A video is a video everywhere.
TEST(ScorePlanTest, WhatOneServerReadsOfAVideoTravelsToAll) {
  RewardDirectory directory({"one", "two"}, {});
  ASSERT_TRUE(directory.Described(0, {KeepingFacts(false, 4)}, 8).ok());
  EXPECT_EQ(directory.FramesEvery({"keeps"}), 4);
  ASSERT_TRUE(directory.Described(1, {KeepingFacts()}, 8).ok());
  EXPECT_EQ(directory.FramesEvery({"keeps"}), 1);
  EXPECT_EQ(directory.FramesEvery({"unknown"}), 1);
}

// Promise: Media are bounded before they come.
TEST(RewardMediaTest, AGroupLargerThanAMessageStaysWhole) {
  const Served served(v1::PICTURE_TRANSPORT_RAW, /*groupwise=*/true);
  ASSERT_TRUE(served.client.ok()) << served.client.status();
  std::vector<Image8> images;
  for (uint32_t i = 0; i < 5; ++i) images.push_back(Noise(1500 + static_cast<int>(i), 1000, 3, i));
  const auto scores = ScorePictures(**served.client, "p", "", images);
  for (const auto& score : scores) EXPECT_TRUE(score.ok()) << score.status();
  ASSERT_EQ(served.seen().size(), 5);
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(served.seen()[i].front() == images[i]);
}

// Promise: Media are bounded before they come.
TEST(ScorePlanTest, ALargeMediumTravelsAloneAndOneOverTheLimitNotAtAll) {
  for (const bool groupwise : {false, true}) {
    RewardDirectory directory({"server"}, {});
    ASSERT_TRUE(directory.Described(0, {{.name = "r", .groupwise = groupwise}}, 8).ok());
    const BatchLimits limits = {.batch_bytes = 100, .medium_bytes = 200, .group_bytes = 450};
    const auto plan = [&](const std::vector<uint64_t>& bytes) {
      std::vector<MediumSize> sizes;
      for (const uint64_t size : bytes) sizes.push_back({.frame_bytes = size});
      return PlanBatches(directory, {"r"}, sizes, limits);
    };
    std::vector<std::vector<size_t>> images;
    for (const ScoreBatch& batch : plan({60, 40, 200, 1, 100})) {
      EXPECT_EQ(batch.too_large, "");
      images.push_back(batch.images);
    }
    using Cut = std::vector<std::vector<size_t>>;
    EXPECT_EQ(images, groupwise ? (Cut{{0, 1, 2, 3, 4}}) : (Cut{{2}, {0, 1}, {3}, {4}}));
    EXPECT_THAT(plan({201}).front().too_large, HasSubstr("201 bytes over 200"));
    EXPECT_EQ(plan({150, 150, 151}).front().too_large.empty(), !groupwise);
  }
}

// Promise: Only JPEG changes pictures on their way. Raw pixels and PNG reach the scorer as they
// were sent. Over JPEG the reward has another identity, and a run that was trained one way is not
// scored the other.
TEST(RewardMediaTest, OverPngTheScorerSeesThePixelsAndTheIdentityIsTheSame) {
  const Served served(v1::PICTURE_TRANSPORT_PNG);
  ASSERT_TRUE(served.client.ok()) << served.client.status();
  EXPECT_EQ((*served.client)->Facts().at("keeps").identity, "keeps/1");
  const std::vector<Image8> images = {Noise(40, 30, 3, 1), Noise(7, 9, 1, 2)};
  for (const auto& score : ScorePictures(**served.client, "p", "", images)) EXPECT_TRUE(score.ok());
  ASSERT_EQ(served.seen().size(), 2);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(served.seen()[i].front() == images[i]);
}

// Promise: Only JPEG changes pictures on their way.
TEST(RewardMediaTest, OverJpegTheIdentityIsAnother) {
  const Served served(v1::PICTURE_TRANSPORT_JPEG);
  ASSERT_TRUE(served.client.ok()) << served.client.status();
  EXPECT_EQ((*served.client)->Facts().at("keeps").identity, "keeps/1; jpeg q95");
  const std::vector<Image8> images = {Smooth(64, 48)};
  for (const auto& score : ScorePictures(**served.client, "p", "", images)) EXPECT_TRUE(score.ok());
  EXPECT_TRUE(served.seen().front().front() ==
              io::DecodeJpeg(io::EncodeJpeg(images.front(), 95)).value());
  // Videos travel raw.
  const std::vector<Image8> clip = {Noise(8, 8, 3, 1), Noise(8, 8, 3, 2)};
  EXPECT_TRUE((*served.client)->ScoreMedia("p", "", {clip})[0].ok());
  EXPECT_TRUE(served.seen().back() == clip);
}

// Promise: Only JPEG changes pictures on their way.
TEST(RewardMediaTest, ARunThatIsTrainedOverJpegIsNotScoredRaw) {
  const std::map<std::string, std::string> pinned = {{"keeps", "keeps/1; jpeg q95"}};
  EXPECT_TRUE(Served(v1::PICTURE_TRANSPORT_JPEG, false, pinned).client.ok());
  const Served raw(v1::PICTURE_TRANSPORT_RAW, false, pinned);
  EXPECT_EQ(raw.client.status().code(), absl::StatusCode::kInvalidArgument);
}

// A server that was told nothing takes so much (GRPC_DEFAULT_MAX_RECV_MESSAGE_LENGTH).
constexpr size_t kUntoldServerMax = size_t{4} << 20;

// The requests that a server would put together, of media of these sizes.
void CheckMessages(const std::vector<Image8>& images, size_t batch_max, int requests) {
  std::vector<Frames> media;
  std::vector<size_t> places;
  for (const Image8& image : images) {
    places.push_back(places.size());
    media.emplace_back(&image, 1);
  }
  const ScoreCall call{.prompt = {}, .media = {media, v1::PICTURE_TRANSPORT_RAW}};
  ByteBudget room(uint64_t{1} << 30);
  std::optional<ScoreAssembly> assembly;
  std::vector<size_t> seen;
  std::vector<std::vector<Image8>> taken;
  int whole = 0;
  bool ended = false;
  v1::ScoreRequest request;
  WriteBatch(call, {.images = places, .rewards = {"r"}}, batch_max,
             [&](const v1::ScoreRequest& message, bool last) {
               EXPECT_FALSE(ended) << "a message behind the last one";
               ended = last;
               EXPECT_LE(message.ByteSizeLong(), kUntoldServerMax);
               if (!assembly) {
                 request = message;
                 for (const auto& item : message.items()) seen.push_back(item.item());
                 assembly.emplace(*ScoreAssembly::Begin(request, 256 << 20, room));
               } else {
                 EXPECT_TRUE(assembly->Add(message).ok());
               }
               if (!assembly->whole()) return true;
               ++whole;
               for (auto& frames : assembly->TakeMedia()) taken.push_back(*std::move(frames));
               assembly.reset();
               return true;
             });
  EXPECT_FALSE(assembly.has_value()) << "a batch that is not whole";
  EXPECT_TRUE(ended) << "the server would wait for more";
  EXPECT_EQ(whole, requests);
  EXPECT_EQ(seen, places);
  ASSERT_EQ(taken.size(), images.size());
  for (size_t i = 0; i < images.size(); ++i) EXPECT_TRUE(taken[i].front() == images[i]) << i;
}

// Promise: Media are bounded before they come.
TEST(ScoreWriterTest, WhatIsWrittenIsPutTogetherAgain) {
  std::vector<Image8> images;
  for (const int height : {1, 2000, 3, 4000, 5, 3000}) {
    images.push_back(Noise(1000, height, 3, static_cast<uint32_t>(height)));
  }
  CheckMessages(images, 8, 1);
  CheckMessages(images, 2, 3);
  CheckMessages({Noise(2048, 2048, 1, 3), Noise(2048, 2048, 1, 4), Noise(2048, 2048, 1, 5)}, 8, 1);
}

// 21 of 81 frames, and not a byte more.
// Promise: A video is a video everywhere.
TEST(ScoreWriterTest, FramesThatNobodyReadsAreNotWritten) {
  std::vector<Image8> frames;
  for (uint32_t i = 0; i < 81; ++i) frames.push_back(Noise(400, 300, 3, i));
  const ScoreCall call{.prompt = {}, .media = {{frames}, v1::PICTURE_TRANSPORT_RAW}};
  std::string written;
  bool ended = false;
  v1::Image head;
  WriteBatch(call, {.images = {0}, .rewards = {"r"}, .frames_every = 4}, 8,
             [&](const v1::ScoreRequest& message, bool last) {
               EXPECT_FALSE(ended);
               ended = last;
               if (written.empty() && head.width() == 0) head = message.items(0).image();
               written += message.items(0).image().pixels();
               return true;
             });
  std::string expected;
  for (const Image8& frame : EveryOf(frames, 4)) {
    expected.append(frame.pixels.begin(), frame.pixels.end());
  }
  EXPECT_TRUE(written == expected);
  EXPECT_TRUE(ended);
  EXPECT_EQ(head.frames(), 21);
  EXPECT_EQ(head.frames_every(), 4);
}

TEST(ScoreWriterTest, APictureSaysNothingOfFrames) {
  const std::vector<Image8> picture = {Noise(4, 3, 3, 1)};
  const TravellingMedia media({picture}, v1::PICTURE_TRANSPORT_RAW);
  EXPECT_EQ(media.Head(0, 4).frames(), 1);
  EXPECT_EQ(media.Head(0, 4).frames_every(), 0);
}

}  // namespace
}  // namespace oxbow::reward
