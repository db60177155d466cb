// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/picture_judge.h"

#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/image.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/server.h"
#include "services/learner/evaluation/held_out_pictures.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::learner {
namespace {

using Stream = grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>;

constexpr uint32_t kImages = 70;  // Some prompts come twice.
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

std::vector<v1::Prompt> NumberedPrompts() {
  std::vector<v1::Prompt> prompts(kPrompts);
  for (uint32_t i = 0; i < kPrompts; ++i) {
    prompts[i].set_id(i + 1);
    prompts[i].set_text(absl::StrCat("text ", i));
  }
  return prompts;
}

// Pictures of 6 x 4 pixels that differ in their first byte.
std::vector<std::vector<Image8>> Pictures(size_t count) {
  std::vector<std::vector<Image8>> pictures;
  for (size_t i = 0; i < count; ++i) {
    Image8 picture{.width = 6, .height = 4, .channels = 1, .pixels = {}};
    picture.pixels.assign(24, static_cast<uint8_t>(200 - i));
    pictures.push_back({std::move(picture)});
  }
  return pictures;
}

v1::RewardConfig RewardOf(const std::string& name) {
  v1::RewardConfig reward;
  reward.add_terms()->set_name(name);
  reward.mutable_terms(0)->set_weight(1);
  return reward;
}

TEST(PictureJudgeTest, EachPictureIsScoredWithThePromptOfItsPlace) {
  Gallery gallery;
  const auto rewards = reward::RewardClient::Create({.endpoints = {gallery.endpoint()}}).value();
  const std::vector<v1::Prompt> prompts = NumberedPrompts();
  PictureJudge judge({.sheet_images = 2, .reward = RewardOf("first_byte")}, prompts, *rewards);
  const std::vector<std::vector<Image8>> pictures = Pictures(kImages);
  const auto result = judge.Judge(pictures);
  ASSERT_TRUE(result.ok()) << result.status();
  std::map<std::string, std::vector<std::string>> expected;
  double sum = 0;
  for (uint32_t i = 0; i < kImages; ++i) {
    const std::vector<uint8_t>& pixels = pictures[i].front().pixels;
    expected[prompts[i % kPrompts].text()].emplace_back(pixels.begin(), pixels.end());
    sum += pixels[0];
  }
  EXPECT_TRUE(gallery.images() == expected);
  EXPECT_DOUBLE_EQ(result->metrics.at("eval/reward_mean"), sum / kImages);
  EXPECT_FALSE(result->metrics.contains("eval/speckle_mean")) << "no task's pictures";
  EXPECT_TRUE(result->metrics.contains("eval/sharpness"));
  EXPECT_EQ(result->small.size(), kImages);
}

// Frames of right and wrong need a reward that can be full, and a picture that was.
TEST(PictureJudgeTest, ThereIsRightAndWrongWhereARewardCanBeFullOnly) {
  for (const double value_max : {1.0, 2.0}) {
    Gallery gallery;
    gallery.DescribeMax(value_max);
    gallery.GiveAll(0.5);
    const auto rewards = reward::RewardClient::Create({.endpoints = {gallery.endpoint()}}).value();
    PictureJudge judge({.sheet_images = 2, .reward = RewardOf("first_byte")}, NumberedPrompts(),
                       *rewards);
    const auto wrong = judge.Judge(Pictures(kImages));
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
    const auto right = judge.Judge(Pictures(kImages));
    ASSERT_TRUE(right.ok()) << right.status();
    // A frame makes the sheet larger.
    EXPECT_EQ(right->sheet.frames[0].width > wrong->sheet.frames[0].width, value_max == 1);
  }
}

// Promise: An observed reward that fails touches nothing else.
TEST(PictureJudgeTest, AnObservedRewardThatFailsIsMissingFromItsOwnMeanAlone) {
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
  v1::RewardConfig reward = RewardOf("ocr");
  reward.add_observed("taste");
  reward.add_observed("row");
  PictureJudge judge({.sheet_images = 2, .reward = reward}, NumberedPrompts(), *rewards);
  const auto result = judge.Judge(Pictures(10));
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
  PictureJudge judge({.sheet_images = 10, .reward = RewardOf("ocr")}, NumberedPrompts(), *rewards);
  return judge.Judge(Pictures(10));
}

// Promise: One picture without a score costs no evaluation. Means are over the pictures that have a
// score, the others are counted, and all are shown. An evaluation fails only if more than 90 % have
// none, or no server answers. A failed one is a line on the terminal and in `oxbow status`, which
// name the settings that got no number.
TEST(PictureJudgeTest, MeansAreOverThePicturesThatHaveAScoreAndTheOthersAreShownWithout) {
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
TEST(PictureJudgeTest, FailsInTheServersWordsOnceNearlyNoPictureHasAScore) {
  EXPECT_EQ(EvaluatedWith(1)->metrics.at("eval/reward_mean"), 1) << "nine of ten are allowed";
  const auto failed = EvaluatedWith(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(failed.status()));
  EXPECT_THAT(std::string(failed.status().message()),
              ::testing::AllOf(::testing::HasSubstr("10 of 10 pictures have no score: "),
                               ::testing::HasSubstr("no face")));
}

TEST(PictureJudgeTest, EndsAtTheFirstSilenceAndWhenItIsCancelled) {
  Gallery gallery;
  const auto rewards =
      reward::RewardClient::Create({.endpoints = {gallery.endpoint()}, .timeout = absl::Seconds(1)})
          .value();  // No rest between tries is longer.
  PictureJudge judge({.sheet_images = 2, .reward = RewardOf("first_byte")}, NumberedPrompts(),
                     *rewards);
  gallery.Break();
  EXPECT_TRUE(absl::IsUnavailable(judge.Judge(Pictures(kImages)).status()));
  EXPECT_LE(gallery.calls(), 4 * 3) << "each of four callers gave up once";
  rewards->Cancel();
  const int before = gallery.calls();
  EXPECT_TRUE(absl::IsCancelled(judge.Judge(Pictures(kImages)).status()));
  EXPECT_EQ(gallery.calls(), before);
}

}  // namespace
}  // namespace oxbow::learner
