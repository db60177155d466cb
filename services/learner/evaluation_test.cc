// SPDX-License-Identifier: Apache-2.0
// Evaluation draws in batches what one batch of all would show, and holds no more than a batch of
// conditioning while it does.
#include "services/learner/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "core/model/image_sampler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/server.h"
#include "services/learner/ranks/rank_stream.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::learner {
namespace {

using Stream = grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>;

constexpr uint32_t kImages = 70;  // More than a batch.
constexpr uint32_t kPrompts = 66;

// Scores an image by its first byte, and keeps all by the text they are of.
class Gallery final : public v1::Reward::Service {
 public:
  ~Gallery() override { server_->Shutdown(absl::Seconds(5)); }

  const std::string& endpoint() const { return server_->endpoint(); }
  std::map<std::string, std::vector<std::string>> images() const {
    absl::MutexLock lock(&mutex_);
    return images_;
  }

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    response->add_rewards()->set_name("first_byte");
    response->mutable_rewards(0)->set_value_max(value_max_);
    response->set_batch_max(4);
    return grpc::Status::OK;
  }

  // From now on every score is `value`.
  void GiveAll(double value) { given_ = value; }
  // The range that the reward tells of itself: it goes from 0 to this.
  void DescribeMax(double value_max) { value_max_ = value_max; }
  // Answers every later call with an error.
  void Break() { broken_ = true; }
  int calls() const { return calls_; }

  grpc::Status Score(grpc::ServerContext*, Stream* stream) override {
    ++calls_;
    if (broken_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    for (v1::ScoreRequest request; stream->Read(&request);) {
      for (const v1::ScoreItem& item : request.items()) {
        const std::string& pixels = item.image().pixels();
        {
          absl::MutexLock lock(&mutex_);
          images_[request.prompt().text()].push_back(pixels);
        }
        v1::ScoreResponse response;
        response.set_item(item.item());
        response.add_rewards()->set_name("first_byte");
        response.mutable_rewards(0)->set_value(
            given_ >= 0 ? given_.load() : static_cast<double>(static_cast<uint8_t>(pixels[0])));
        stream->Write(response);
      }
    }
    return grpc::Status::OK;
  }

 private:
  std::atomic<bool> broken_ = false;
  std::atomic<double> given_ = -1;  // Below 0: none.
  std::atomic<double> value_max_ = 0;
  std::atomic<int> calls_ = 0;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::vector<std::string>> images_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<rpc::Server> server_ = rpc::Server::Start({}, {this}).value();
};

// Images depend on noise and prompt. Knows what the cache held at its first call.
class WatchingModel final : public model::VelocityModel {
 public:
  explicit WatchingModel(const ConditioningCache* watched) : watched_(watched) {}
  uint64_t held_at_first() const { return held_at_first_; }

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor&,
                     const model::Conditioning& conditioning) const override {
    if (held_at_first_ == 0 && watched_ != nullptr) held_at_first_ = watched_->bytes();
    return x * 0.5 + conditioning.at(model::kPromptTokens).mean({1, 2}).view({-1, 1, 1, 1});
  }

  const ConditioningCache* const watched_;
  mutable uint64_t held_at_first_ = 0;
};

std::unique_ptr<io::EncodedPrompts> Encoded() {
  const auto components =
      io::OpenDiffusersDirectory(OXBOW_SOURCE_DIR "/tests/golden/text/pipeline");
  return io::EncodedPrompts::Open(*components, {.encoders = {.t5_length = 9}}).value();
}

std::vector<v1::Prompt> NumberedPrompts() {
  std::vector<v1::Prompt> prompts(kPrompts);
  for (uint32_t i = 0; i < kPrompts; ++i) {
    prompts[i].set_id(i + 1);
    prompts[i].set_text(absl::StrCat("text ", i));
  }
  return prompts;
}

TEST(EvaluationTest, ImagesAreThoseOfOneBatchAndConditioningIsHeldForSixtyFour) {
  Gallery gallery;
  const auto rewards = reward::RewardClient::Create({.endpoints = {gallery.endpoint()}}).value();
  const auto decoder = model::MakePixelDecoder();
  const std::vector<v1::Prompt> prompts = NumberedPrompts();
  ConditioningCache cache(Encoded());
  v1::RewardConfig reward;
  reward.add_terms()->set_name("first_byte");
  reward.mutable_terms(0)->set_weight(1);
  const Evaluation::Options options{
      .pictures = {.images = kImages, .sigmas = {1, 0.5, 0}, .latent_shape = {1, 4, 6}, .seed = 5},
      .sheet_images = 2,
      .reward = reward};
  Evaluation evaluation(options, prompts, cache, *decoder, *rewards);
  const WatchingModel watching(&cache);
  const auto result = evaluation.Run(watching);
  ASSERT_TRUE(result.ok()) << result.status();
  const uint64_t of_all = cache.bytes();
  EXPECT_EQ(watching.held_at_first(), of_all / kPrompts * 64);

  std::vector<model::ImageRequest> requests;
  for (uint32_t i = 0; i < kImages; ++i) {
    requests.push_back(
        {.conditioning = (*cache.Get(prompts[i % kPrompts]))->tensors,
         .key = {
             .run_seed = 5, .group = (uint64_t{1} << 63) + i % kPrompts, .sample = i / kPrompts}});
  }
  const at::Tensor drawn =
      model::SampleImages(WatchingModel(nullptr), *decoder, model::OdeSpec(options.pictures.sigmas),
                          requests, options.pictures.latent_shape, kImages);
  std::map<std::string, std::vector<std::string>> expected;
  double sum = 0;
  for (uint32_t i = 0; i < kImages; ++i) {
    const Image8 image = model::FramesOf(drawn, i).front();
    expected[prompts[i % kPrompts].text()].emplace_back(image.pixels.begin(), image.pixels.end());
    sum += drawn[i].flatten()[0].item<double>();
  }
  EXPECT_TRUE(gallery.images() == expected);
  EXPECT_DOUBLE_EQ(result->metrics.at("eval/reward_mean"), sum / kImages);
  EXPECT_FALSE(result->metrics.contains("eval/speckle_mean")) << "no task's pictures";
  EXPECT_TRUE(result->metrics.contains("eval/sharpness"));
  EXPECT_EQ(result->small.size(), kImages);
}

// Takes no results: an evaluation has none.
class NoResults final : public ResultReceiver {
 public:
  v1::InsertOutcome Submit(ReceivedGroup, std::string&) override {
    return v1::INSERT_OUTCOME_FENCED;
  }
  void Refuse(LeaseId, const std::string&, const std::string&) override {}
};

// The answer of a rank above 0 to each Draw until Stop, with a cache and a decoder of its own.
void ServeDraws(const std::string& leader, int rank, int ranks,
                const HeldOutPictures::Options& options) {
  RankStream stream({.leader = leader, .rank = rank, .place = {}}, Clock::Steady(),
                    [](const absl::Status&) {});
  ConditioningCache cache(Encoded());
  const auto decoder = model::MakePixelDecoder();
  const HeldOutPictures pictures(options, NumberedPrompts(), cache, *decoder);
  for (auto command = stream.Next(); command.ok() && !command->has_stop();
       command = stream.Next()) {
    const uint64_t evaluation = command->draw().evaluation();
    EXPECT_TRUE(pictures
                    .Draw(
                        WatchingModel(nullptr), pictures.SharesOf(ranks)[static_cast<size_t>(rank)],
                        [&] { return stream.DrawingEnded(evaluation); },
                        [&](size_t place, const HeldOutPictures::Frames& frames) {
                          return stream.SendPicture(evaluation, place, frames);
                        })
                    .ok());
  }
}

EvaluationResult EvaluatedBy(int ranks, const Evaluation::Options& options,
                             reward::RewardClient& rewards) {
  NoResults results;
  RankLeader leader({.ranks = ranks, .timeout = absl::Seconds(60)}, Clock::Steady(), results,
                    [](const absl::Status&) {});
  const auto server = rpc::Server::Start({}, {&leader}).value();
  std::vector<std::thread> others;
  for (int rank = 1; rank < ranks; ++rank) {
    others.emplace_back(ServeDraws, server->endpoint(), rank, ranks, options.pictures);
  }
  EXPECT_EQ(leader.AwaitAll(absl::Seconds(60)), absl::OkStatus());
  const auto decoder = model::MakePixelDecoder();
  ConditioningCache cache(Encoded());
  Evaluation evaluation(options, NumberedPrompts(), cache, *decoder, rewards);
  absl::StatusOr<EvaluationResult> result = evaluation.Run(WatchingModel(nullptr), &leader);
  EXPECT_TRUE(result.ok()) << result.status();
  leader.Stop(absl::Seconds(60));
  for (std::thread& other : others) other.join();
  server->Shutdown(absl::ZeroDuration());
  return *std::move(result);
}

// Promise: The number of ranks changes no number.
TEST(EvaluationTest, ItsResultDoesNotDependOnHowManyRanksDraw) {
  Gallery gallery;
  const auto rewards = reward::RewardClient::Create({.endpoints = {gallery.endpoint()}}).value();
  v1::RewardConfig reward;
  reward.add_terms()->set_name("first_byte");
  reward.mutable_terms(0)->set_weight(1);
  for (const uint32_t images : {kImages, 2u}) {
    for (const bool whole_batches : {false, true}) {
      const Evaluation::Options options{.pictures = {.images = images,
                                                     .sigmas = {1, 0.5, 0},
                                                     .latent_shape = {1, 4, 6},
                                                     .at_once = 16,
                                                     .whole_batches = whole_batches,
                                                     .seed = 5},
                                        .sheet_images = 20,
                                        .reward = reward};
      const EvaluationResult one = EvaluatedBy(1, options, *rewards);
      ASSERT_EQ(one.pictures.size(), images);
      for (const int ranks : {2, 3, 5}) {
        SCOPED_TRACE(absl::StrCat(images, " images, ", ranks, " ranks, whole ", whole_batches));
        const EvaluationResult result = EvaluatedBy(ranks, options, *rewards);
        EXPECT_EQ(result.metrics, one.metrics);
        EXPECT_TRUE(result.pictures == one.pictures);
        EXPECT_TRUE(result.sheet.frames == one.sheet.frames);
        EXPECT_TRUE(result.files == one.files);
      }
    }
  }
}

// Promise: The number of ranks changes no number.
TEST(HeldOutPicturesTest, SharesCoverAllPlacesOnceInWholeBatchesWhereAsked) {
  const auto decoder = model::MakePixelDecoder();
  ConditioningCache cache(Encoded());
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const HeldOutPictures::Options options{.images = 1 + static_cast<uint32_t>(random() % 200),
                                           .sigmas = {1, 0},
                                           .latent_shape = {1, 4, 6},
                                           .at_once = 1 + static_cast<int64_t>(random() % 64),
                                           .whole_batches = random() % 2 == 0};
    const auto ranks = 1 + static_cast<int>(random() % 20);
    const HeldOutPictures pictures(options, NumberedPrompts(), cache, *decoder);
    const std::vector<parallel::Share> shares = pictures.SharesOf(ranks);
    ASSERT_EQ(shares.size(), static_cast<size_t>(ranks));
    const size_t unit = options.whole_batches ? static_cast<size_t>(options.at_once) : 1;
    EXPECT_GT(shares[0].end, 0u) << "rank 0 has some";
    size_t end = 0;
    size_t least = options.images, most = 0;
    for (const parallel::Share& share : shares) {
      ASSERT_EQ(share.begin, end);
      EXPECT_TRUE(share.begin % unit == 0 || share.begin == options.images);
      end = share.end;
      const size_t units = (share.end - share.begin + unit - 1) / unit;
      least = std::min(least, units);
      most = std::max(most, units);
    }
    EXPECT_EQ(end, options.images);
    EXPECT_LE(most - least, 1u) << "work is even";
  }
}

// Frames of right and wrong need a reward that can be full, and a picture that was.
TEST(EvaluationTest, ThereIsRightAndWrongWhereARewardCanBeFullOnly) {
  for (const double value_max : {1.0, 2.0}) {
    Gallery gallery;
    gallery.DescribeMax(value_max);
    gallery.GiveAll(0.5);
    const auto rewards = reward::RewardClient::Create({.endpoints = {gallery.endpoint()}}).value();
    const auto decoder = model::MakePixelDecoder();
    ConditioningCache cache(Encoded());
    v1::RewardConfig reward;
    reward.add_terms()->set_name("first_byte");
    reward.mutable_terms(0)->set_weight(1);
    Evaluation evaluation(
        {.pictures = {.images = kImages, .sigmas = {1, 0}, .latent_shape = {1, 4, 6}},
         .sheet_images = 2,
         .reward = reward},
        NumberedPrompts(), cache, *decoder, *rewards);
    const WatchingModel model(nullptr);
    const auto wrong = evaluation.Run(model);
    ASSERT_TRUE(wrong.ok()) << wrong.status();
    ASSERT_EQ(wrong->pictures.size(), kImages);
    EXPECT_EQ(wrong->pictures[kPrompts].prompt, "text 0");
    EXPECT_EQ(wrong->pictures[0].width, 6);
    ASSERT_EQ(wrong->files.size(), 2u) << "those on the sheet";
    EXPECT_EQ(wrong->files[1].name, "001.png");
    EXPECT_EQ(wrong->pictures[1].picture, "001.png");
    EXPECT_EQ(wrong->pictures[2].picture, "");
    EXPECT_EQ(io::DecodePng(wrong->files[1].bytes)->width, 6);
    EXPECT_EQ(wrong->pictures[kPrompts + 1].group, kEvaluationGroups + 1);
    EXPECT_EQ(wrong->pictures[kPrompts + 1].sample, 1u);
    EXPECT_EQ(wrong->pictures[3].right, value_max == 1 ? std::optional(false) : std::nullopt);
    gallery.GiveAll(1);
    const auto right = evaluation.Run(model);
    ASSERT_TRUE(right.ok()) << right.status();
    // A frame makes the sheet larger.
    EXPECT_EQ(right->sheet.frames[0].width > wrong->sheet.frames[0].width, value_max == 1);
  }
}

// A pass that is asked for after Cancel computes nothing, and nothing is decoded or scored.
// Promise: A stop signal is answered by a checkpoint.
TEST(EvaluationTest, CancelledInAForwardPassMakesNoOther) {
  class CancellingModel final : public model::VelocityModel {
   public:
    mutable std::function<void()> cancel;
    mutable int passes = 0;

   private:
    at::Tensor Predict(const at::Tensor& x, const at::Tensor&,
                       const model::Conditioning&) const override {
      if (++passes == 3) cancel();
      return x;
    }
  };
  class CountingDecoder final : public model::ImageDecoder {
   public:
    mutable int calls = 0;
    at::Tensor Decode(const at::Tensor& latents) const override {
      ++calls;
      return model::ToBytes(latents);
    }
  };
  Gallery gallery;
  const auto rewards = reward::RewardClient::Create({.endpoints = {gallery.endpoint()}}).value();
  const std::vector<v1::Prompt> prompts = NumberedPrompts();
  ConditioningCache cache(Encoded());
  v1::RewardConfig reward;
  reward.add_terms()->set_name("first_byte");
  const CountingDecoder decoder;
  Evaluation evaluation(
      {.pictures = {.images = 4, .sigmas = {1, 0.8, 0.6, 0.4, 0.2, 0}, .latent_shape = {1, 4, 6}},
       .sheet_images = 2,
       .reward = reward},
      prompts, cache, decoder, *rewards);
  const CancellingModel model;
  model.cancel = [&] { evaluation.Cancel(); };
  EXPECT_TRUE(absl::IsCancelled(evaluation.Run(model).status()));
  EXPECT_EQ(model.passes, 3);
  EXPECT_EQ(decoder.calls, 0);
  EXPECT_EQ(gallery.calls(), 0);
}

// Promise: An observed reward that fails touches nothing else.
TEST(EvaluationTest, AnObservedRewardThatFailsIsMissingFromItsOwnMeanAlone) {
  // Every second image has no score of `taste`; no image has one of `row`.
  reward::FakeRewardServer server(
      {reward::Described("ocr"), reward::Described("taste"), reward::Described("row")}, 64,
      [](const v1::ScoreRequest& request, Stream& stream) {
        for (const v1::ScoreItem& item : request.items()) {
          v1::ScoreResponse response;
          response.set_item(item.item());
          for (const std::string& name : request.rewards()) {
            v1::RewardOutcome& outcome = *response.add_outcomes();
            outcome.set_name(name);
            outcome.set_value(name == "ocr" ? 1 : 3);
            const bool even = request.prompt().text().back() % 2 == 0;
            if (name == "row" || (name == "taste" && even)) outcome.set_status_code(13);
          }
          stream.Write(response);
        }
        return grpc::Status::OK;
      });
  const auto rewards = reward::RewardClient::Create({.endpoints = {server.endpoint()},
                                                     .rewards = {"ocr", "taste", "row"},
                                                     .observed = {"taste", "row"}})
                           .value();
  const auto decoder = model::MakePixelDecoder();
  ConditioningCache cache(Encoded());
  v1::RewardConfig reward;
  reward.add_terms()->set_name("ocr");
  reward.mutable_terms(0)->set_weight(1);
  reward.add_observed("taste");
  reward.add_observed("row");
  Evaluation evaluation({.pictures = {.images = 10, .sigmas = {1, 0}, .latent_shape = {1, 4, 6}},
                         .sheet_images = 2,
                         .reward = reward},
                        NumberedPrompts(), cache, *decoder, *rewards);
  const auto result = evaluation.Run(WatchingModel(nullptr));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->metrics.at("eval/reward_mean"), 1);
  EXPECT_EQ(result->metrics.at("eval/reward_taste_mean"), 3);
  EXPECT_EQ(result->metrics.at("eval/reward_taste_failed"), 5);
  EXPECT_EQ(result->metrics.at("eval/reward_row_failed"), 10);
  EXPECT_FALSE(result->metrics.contains("eval/reward_row_mean"));
  EXPECT_FALSE(result->metrics.contains("eval/reward_ocr_failed"));
}

// Prompts are "text 0" to "text 9", once each; the server cannot score those from `scored` on.
absl::StatusOr<EvaluationResult> EvaluatedWith(int scored) {
  v1::RewardDescription described = reward::Described("ocr");
  described.set_value_max(1);
  reward::FakeRewardServer server({described}, 64,
                                  [&](const v1::ScoreRequest& request, Stream& stream) {
                                    for (const v1::ScoreItem& item : request.items()) {
                                      v1::ScoreResponse response;
                                      response.set_item(item.item());
                                      v1::RewardOutcome& outcome = *response.add_outcomes();
                                      outcome.set_name("ocr");
                                      const int prompt = request.prompt().text().back() - '0';
                                      if (prompt < scored) {
                                        outcome.set_value(prompt == 0 ? 1 : 0.5);
                                      } else {
                                        outcome.set_status_code(grpc::INVALID_ARGUMENT);
                                        outcome.set_status_message("no face");
                                      }
                                      stream.Write(response);
                                    }
                                    return grpc::Status::OK;
                                  });
  const auto rewards =
      reward::RewardClient::Create({.endpoints = {server.endpoint()}, .rewards = {"ocr"}}).value();
  const auto decoder = model::MakePixelDecoder();
  ConditioningCache cache(Encoded());
  v1::RewardConfig reward;
  reward.add_terms()->set_name("ocr");
  reward.mutable_terms(0)->set_weight(1);
  Evaluation evaluation({.pictures = {.images = 10, .sigmas = {1, 0}, .latent_shape = {1, 4, 6}},
                         .sheet_images = 10,
                         .reward = reward},
                        NumberedPrompts(), cache, *decoder, *rewards);
  return evaluation.Run(WatchingModel(nullptr));
}

// Promise: One picture without a score costs no evaluation. Means are over the pictures that have a
// score, the others are counted, and all are shown. An evaluation fails only if more than 90 % have
// none, or no server answers. A failed one is a line on the terminal and in `oxbow status`, which
// name the settings that got no number.
TEST(EvaluationTest, MeansAreOverThePicturesThatHaveAScoreAndTheOthersAreShownWithout) {
  const auto result = EvaluatedWith(4);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_DOUBLE_EQ(result->metrics.at("eval/reward_mean"), 2.5 / 4);
  EXPECT_DOUBLE_EQ(result->metrics.at("eval/reward_ocr_mean"), 2.5 / 4);
  EXPECT_EQ(result->metrics.at("eval/samples_unscored"), 6);
  EXPECT_EQ(result->caption, "held-out prompts, reward 0.625, 6 without a score");
  ASSERT_EQ(result->pictures.size(), 10u);
  EXPECT_EQ(result->pictures[0].right, true);
  EXPECT_EQ(result->pictures[3].right, false);
  EXPECT_TRUE(std::isnan(result->pictures[4].reward));
  EXPECT_EQ(result->pictures[4].right, std::nullopt);
  EXPECT_EQ(result->pictures[9].picture, "009.png");
  EXPECT_EQ(EvaluatedWith(10)->metrics.at("eval/samples_unscored"), 0);
}

// Promise: One picture without a score costs no evaluation.
TEST(EvaluationTest, FailsInTheServersWordsOnceNearlyNoPictureHasAScore) {
  EXPECT_EQ(EvaluatedWith(1)->metrics.at("eval/reward_mean"), 1) << "nine of ten are allowed";
  const auto failed = EvaluatedWith(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(failed.status()));
  EXPECT_THAT(std::string(failed.status().message()),
              ::testing::AllOf(::testing::HasSubstr("10 of 10 pictures have no score: "),
                               ::testing::HasSubstr("no face")));
}

TEST(EvaluationTest, EndsAtTheFirstSilenceAndWhenItIsCancelled) {
  Gallery gallery;
  const auto rewards =
      reward::RewardClient::Create({.endpoints = {gallery.endpoint()}, .timeout = absl::Seconds(1)})
          .value();  // No rest between tries is longer.
  const auto decoder = model::MakePixelDecoder();
  const std::vector<v1::Prompt> prompts = NumberedPrompts();
  ConditioningCache cache(Encoded());
  v1::RewardConfig reward;
  reward.add_terms()->set_name("first_byte");
  Evaluation evaluation(
      {.pictures = {.images = kImages, .sigmas = {1, 0}, .latent_shape = {1, 4, 6}},
       .sheet_images = 2,
       .reward = reward},
      prompts, cache, *decoder, *rewards);
  gallery.Break();
  EXPECT_TRUE(absl::IsUnavailable(evaluation.Run(WatchingModel(nullptr)).status()));
  EXPECT_LE(gallery.calls(), 4 * 3) << "each of four callers gave up once";
  evaluation.Cancel();
  const int before = gallery.calls();
  EXPECT_TRUE(absl::IsCancelled(evaluation.Run(WatchingModel(nullptr)).status()));
  EXPECT_EQ(gallery.calls(), before);
}

}  // namespace
}  // namespace oxbow::learner
