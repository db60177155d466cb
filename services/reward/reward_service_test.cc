// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "examples/worlds/digits.h"
#include "examples/worlds/digits_ocr.h"
#include "io/image.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/server.h"
#include "telemetry/metrics.h"

namespace oxbow::reward {
namespace {

using ::testing::HasSubstr;

// Returns the number and the note it was built with.
class ConstantScorer final : public PictureScorer {
 public:
  ConstantScorer(std::string name, double value, std::string note = "constant")
      : PictureScorer({.name = std::move(name)}), value_(value), note_(std::move(note)) {}
  absl::StatusOr<reward::Score> ScorePicture(std::string_view, std::string_view,
                                             const Image8&) const override {
    return reward::Score{.value = value_, .note = note_};
  }

 private:
  const double value_;
  const std::string note_;
};

ScorerPanel DigitsAndBroken() {
  std::vector<std::unique_ptr<Scorer>> scorers;
  scorers.push_back(worlds::MakeDigitsOcr());
  scorers.push_back(
      std::make_unique<ConstantScorer>("not_a_number", std::numeric_limits<double>::quiet_NaN()));
  scorers.push_back(std::make_unique<ConstantScorer>("constant", 0.5));
  scorers.push_back(std::make_unique<ConstantScorer>("no_utf8", 0.5, "cut \xe4\xb8"));
  return ScorerPanel(std::move(scorers));
}

class RewardServiceTest : public ::testing::Test {
 protected:
  RewardServiceTest()
      : panel_(DigitsAndBroken()),
        metrics_(registry_, panel_),
        service_({.batch_max = 4}, panel_, metrics_, Clock::Steady()),
        server_(rpc::Server::Start({}, {&service_}).value()),
        stub_(v1::Reward::NewStub(rpc::Connect(server_->endpoint()))) {}

  static v1::ScoreRequest Request(int items, const std::string& reward) {
    v1::ScoreRequest request;
    request.mutable_prompt()->set_text("text 473");
    request.add_rewards(reward);
    for (int i = 0; i < items; ++i) {
      v1::ScoreItem& item = *request.add_items();
      item.set_item(100 + i);
      item.mutable_image()->set_width(20);
      item.mutable_image()->set_height(8);
      item.mutable_image()->set_channels(1);
      std::string pixels;
      for (const float x : worlds::RenderDigits({4, 7, 3}, i % 2)) pixels += x > 0 ? '\xff' : '\0';
      item.mutable_image()->set_pixels(pixels);
    }
    return request;
  }

  // The answers to one call with these batches, and the status of the call.
  std::pair<std::vector<v1::ScoreResponse>, grpc::Status> Score(
      const std::vector<v1::ScoreRequest>& batches) {
    const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
    const auto stream = stub_->Score(context.get());
    for (const v1::ScoreRequest& batch : batches) stream->Write(batch);
    stream->WritesDone();
    std::vector<v1::ScoreResponse> answers;
    for (v1::ScoreResponse answer; stream->Read(&answer);) answers.push_back(answer);
    return {answers, stream->Finish()};
  }

  prometheus::Registry registry_;
  ScorerPanel panel_;
  RewardMetrics metrics_;
  RewardService service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::Reward::Stub> stub_;
};

// A client cannot read a message with such a text at all.
TEST_F(RewardServiceTest, ATextThatIsNoUtf8CostsNoAnswer) {
  const auto [answers, status] = Score({Request(2, "no_utf8")});
  EXPECT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].outcomes(0).note(), "cut ??");
}

TEST_F(RewardServiceTest, DescribesItsRewardsAndBatchLimit) {
  v1::DescribeResponse response;
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  ASSERT_TRUE(stub_->Describe(context.get(), {}, &response).ok());
  ASSERT_EQ(response.rewards_size(), 4);
  EXPECT_EQ(response.rewards(0).name(), "digits_ocr");
  EXPECT_EQ(response.rewards(0).value_max(), 1);
  EXPECT_EQ(response.rewards(0).identity(), "digits_ocr/1");
  EXPECT_THAT(response.rewards(0).media(), ::testing::ElementsAre("image", "video"));
  EXPECT_EQ(response.batch_max(), 4);
}

// Promise: A score is never made up.
TEST_F(RewardServiceTest, BadItemGetsItsStatusAndTheOthersTheirScore) {
  v1::ScoreRequest first = Request(3, "digits_ocr");
  first.mutable_items(1)->mutable_image()->set_pixels("short");
  v1::ScoreRequest second = Request(1, "digits_ocr");
  second.mutable_prompt()->set_text("a red cube");
  const auto [answers, status] = Score({first, second});
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answers.size(), 4);
  for (const int good : {0, 2}) {
    EXPECT_EQ(answers[good].item(), 100 + good);
    EXPECT_EQ(answers[good].status_code(), 0);
    EXPECT_EQ(answers[good].rewards(0).value(), 1);
  }
  for (const int bad : {1, 3}) {
    EXPECT_EQ(answers[bad].status_code(), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(answers[bad].rewards_size(), 0);
  }
  const std::string text = telemetry::ScrapeText(registry_);
  EXPECT_THAT(text,
              HasSubstr(R"(oxbow_reward_items_total{outcome="scored",reward="digits_ocr"} 2)"));
  EXPECT_THAT(text,
              HasSubstr(R"(oxbow_reward_items_total{outcome="invalid",reward="digits_ocr"} 2)"));
  EXPECT_THAT(text,
              HasSubstr(R"(oxbow_reward_items_total{outcome="failed",reward="digits_ocr"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(oxbow_reward_score_count{reward="digits_ocr"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(oxbow_reward_score_sum{reward="digits_ocr"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(oxbow_reward_request_duration_seconds_count{outcome="ok"} 1)"));
  EXPECT_THAT(text, HasSubstr("oxbow_reward_batch_items_count 2"));
}

// Promise: A score is never made up. An image to which a reward server answers without a score is
// asked for again. Then it is dropped, or its group fails first, as `reward.on_failure` says. It
// never counts as 0.
TEST_F(RewardServiceTest, EachRewardHasAnOutcomeOfItsOwnAndOldClientsAllOrNothing) {
  v1::ScoreRequest request = Request(1, "digits_ocr");
  request.add_rewards("not_a_number");
  request.add_rewards("constant");
  const auto [answers, status] = Score({request});
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answers.size(), 1);
  ASSERT_EQ(answers[0].outcomes_size(), 3);
  EXPECT_EQ(answers[0].outcomes(0).name(), "digits_ocr");
  EXPECT_EQ(answers[0].outcomes(0).value(), 1);
  EXPECT_EQ(answers[0].outcomes(1).status_code(), grpc::INTERNAL);
  EXPECT_EQ(answers[0].outcomes(1).value(), 0);
  EXPECT_EQ(answers[0].outcomes(2).value(), 0.5);
  EXPECT_EQ(answers[0].outcomes(2).note(), "constant");
  EXPECT_EQ(answers[0].status_code(), grpc::INTERNAL);
  EXPECT_EQ(answers[0].rewards_size(), 0);
}

// Promise: Media are bounded before they come.
TEST_F(RewardServiceTest, WhatIsNoWholePictureIsTheStatusOfItsItem) {
  v1::ScoreRequest request = Request(4, "digits_ocr");
  request.mutable_items(1)->mutable_image()->set_frames(2);  // 80 bytes for 160.
  request.mutable_items(2)->mutable_image()->set_encoding("jpeg");
  request.mutable_items(3)->mutable_image()->set_pixels_size(100);
  const auto [answers, status] = Score({request});
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answers.size(), 4);
  EXPECT_EQ(answers[0].status_code(), 0);
  for (int bad = 1; bad < 4; ++bad) EXPECT_EQ(answers[bad].status_code(), grpc::INVALID_ARGUMENT);
}

// Promise: Media are bounded before they come.
TEST_F(RewardServiceTest, AMediumInPiecesHasTheScoreOfTheWhole) {
  v1::ScoreRequest first = Request(3, "digits_ocr");
  std::vector<v1::ScoreRequest> requests;
  for (const int i : {0, 2}) {
    v1::Image& image = *first.mutable_items(i)->mutable_image();
    const std::string pixels = image.pixels();
    image.set_pixels_size(pixels.size());
    image.set_pixels(pixels.substr(0, 7));
    for (size_t at = 7; at < pixels.size(); at += 40) {
      v1::ScoreItem& piece = *requests.emplace_back().add_items();
      piece.set_item(100 + i);
      piece.mutable_image()->set_pixels(pixels.substr(at, 40));
    }
  }
  requests.insert(requests.begin(), first);
  requests.push_back(Request(1, "digits_ocr"));  // The next batch of the call.
  const auto [answers, status] = Score(requests);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(answers.size(), 4);
  for (const auto& answer : answers) {
    ASSERT_EQ(answer.outcomes_size(), 1);
    EXPECT_EQ(answer.outcomes(0).value(), 1) << answer.status_message();
  }
  requests.resize(2);
  const grpc::Status cut = Score(requests).second;
  EXPECT_EQ(cut.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(cut.error_message(), HasSubstr("before all pieces"));
}

// Promise: A score is never made up.
TEST_F(RewardServiceTest, ScoreThatIsNotFiniteIsAnErrorAndNeverSent) {
  v1::ScoreRequest request = Request(1, "digits_ocr");
  request.add_rewards("not_a_number");
  const auto [answers, status] = Score({request});
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(answers.size(), 1);
  EXPECT_EQ(answers[0].status_code(), grpc::INTERNAL);
  EXPECT_THAT(answers[0].status_message(), HasSubstr("not_a_number"));
  EXPECT_EQ(answers[0].rewards_size(), 0);
  EXPECT_THAT(telemetry::ScrapeText(registry_),
              HasSubstr(R"(oxbow_reward_items_total{outcome="failed",reward="not_a_number"} 1)"));
}

// Promise: Each reward has a health of its own.
TEST_F(RewardServiceTest, ARewardWithoutScoresIsNotServingAndTheOthersAre) {
  for (int batch = 0; batch < RewardHealth::kFailuresMax; ++batch) {
    EXPECT_EQ(service_.Serves("oxbow.v1.Reward/not_a_number"), true);
    ASSERT_TRUE(Score({Request(1, "not_a_number")}).second.ok());
    v1::ScoreRequest wrong = Request(1, "digits_ocr");
    wrong.mutable_prompt()->set_text("a red cube");
    ASSERT_TRUE(Score({wrong}).second.ok());
  }
  EXPECT_EQ(service_.Serves("oxbow.v1.Reward/not_a_number"), false);
  EXPECT_EQ(service_.Serves("oxbow.v1.Reward/digits_ocr"), true);
  EXPECT_EQ(service_.Serves(""), true);
  const std::string text = telemetry::ScrapeText(registry_);
  EXPECT_THAT(text, HasSubstr(R"(oxbow_reward_serving{reward="not_a_number"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"(oxbow_reward_serving{reward="digits_ocr"} 1)"));
}

TEST_F(RewardServiceTest, WrongCallsEndWithTheReason) {
  EXPECT_EQ(Score({Request(5, "digits_ocr")}).second.error_code(), grpc::INVALID_ARGUMENT);
  const grpc::Status unknown = Score({Request(1, "pickscore")}).second;
  EXPECT_EQ(unknown.error_code(), grpc::NOT_FOUND);
  EXPECT_THAT(unknown.error_message(), HasSubstr("pickscore"));
  EXPECT_THAT(telemetry::ScrapeText(registry_),
              HasSubstr(R"(oxbow_reward_request_duration_seconds_count{outcome="error"} 2)"));
}

TEST_F(RewardServiceTest, APngFileIsWhatItsMessageSays) {
  v1::ScoreRequest request = Request(4, "digits_ocr");
  for (v1::ScoreItem& item : *request.mutable_items()) {
    v1::Image& image = *item.mutable_image();
    image.set_encoding("png");
    image.set_pixels(io::EncodePng({.width = 20,
                                    .height = 8,
                                    .channels = 1,
                                    .pixels = {image.pixels().begin(), image.pixels().end()}}));
  }
  request.mutable_items(1)->mutable_image()->set_width(21);
  request.mutable_items(2)->mutable_image()->set_pixels("no png");
  std::string& cut = *request.mutable_items(3)->mutable_image()->mutable_pixels();
  cut.resize(cut.size() / 2);
  const auto [answers, status] = Score({request});
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answers[0].outcomes(0).value(), 1);
  EXPECT_EQ(answers[1].status_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(answers[2].status_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(answers[3].status_code(), grpc::INVALID_ARGUMENT);
}

// Scores when it is let go.
class HeldScorer final : public PictureScorer {
 public:
  HeldScorer(absl::Notification& entered, absl::Notification& go_on)
      : PictureScorer({.name = "held"}), entered_(entered), go_on_(go_on) {}
  absl::StatusOr<reward::Score> ScorePicture(std::string_view, std::string_view,
                                             const Image8&) const override {
    if (!entered_.HasBeenNotified()) entered_.Notify();  // One thread scores.
    go_on_.WaitForNotification();
    return reward::Score{.value = 1};
  }

 private:
  absl::Notification& entered_;
  absl::Notification& go_on_;
};

// Promise: Open streams stop nobody.
TEST(RewardServiceLoadTest, IdleStreamsCostNothingAndABatchTooManyIsRefused) {
  absl::Notification entered;
  absl::Notification go_on;
  std::vector<std::unique_ptr<Scorer>> scorers;
  scorers.push_back(std::make_unique<HeldScorer>(entered, go_on));
  const ScorerPanel panel(std::move(scorers));
  prometheus::Registry registry;
  RewardMetrics metrics(registry, panel);
  RewardService service({.queue = {.threads = 1, .items_max = 3}}, panel, metrics, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service}).value();
  const auto stub = v1::Reward::NewStub(rpc::Connect(server->endpoint()));
  struct Call {
    explicit Call(v1::Reward::Stub& stub)
        : context(rpc::ContextWithDeadline(absl::Seconds(20))), stream(stub.Score(context.get())) {}
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ScoreRequest, v1::ScoreResponse>> stream;
  };
  std::vector<Call> idle;
  for (int i = 0; i < 200; ++i) idle.emplace_back(*stub);
  v1::ScoreRequest request;
  v1::ScoreItem& item = *request.add_items();
  item.mutable_image()->set_width(1);
  item.mutable_image()->set_height(1);
  item.mutable_image()->set_channels(1);
  item.mutable_image()->set_pixels("x");
  // One is scored and two wait; the others are refused, whichever they are.
  absl::BlockingCounter refused(5);
  std::atomic<int> scored = 0;
  std::vector<std::thread> callers;
  const auto call_once = [&] {
    const Call call(*stub);
    call.stream->Write(request);
    call.stream->WritesDone();
    v1::ScoreResponse answer;
    while (call.stream->Read(&answer)) EXPECT_EQ(answer.status_code(), 0);
    const grpc::Status status = call.stream->Finish();
    if (status.ok()) {
      ++scored;
    } else {
      EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
      EXPECT_GE(rpc::RetryAfterOf(*call.context), absl::Milliseconds(100));
      refused.DecrementCount();
    }
  };
  callers.emplace_back(call_once);
  entered.WaitForNotification();
  for (int i = 0; i < 7; ++i) callers.emplace_back(call_once);
  refused.Wait();
  v1::DescribeResponse description;
  EXPECT_TRUE(
      stub->Describe(rpc::ContextWithDeadline(absl::Seconds(20)).get(), {}, &description).ok());
  go_on.Notify();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(scored, 3);
  for (Call& call : idle) call.context->TryCancel();
  for (Call& call : idle) (void)call.stream->Finish();
}

// Promise: Each reward has a health of its own.
TEST(RewardServiceLoadTest, WhileItLoadsItIsNotServingAndCallsAreUnavailable) {
  std::vector<std::unique_ptr<Scorer>> scorers;
  scorers.push_back(std::make_unique<ConstantScorer>("constant", 0.5));
  const ScorerPanel panel(std::move(scorers));
  prometheus::Registry registry;
  RewardMetrics metrics(registry, panel);
  RewardService service({}, {"constant"}, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service}).value();
  const auto stub = v1::Reward::NewStub(rpc::Connect(server->endpoint()));
  const auto describe = [&] {
    v1::DescribeResponse response;
    return stub->Describe(rpc::ContextWithDeadline(absl::Seconds(20)).get(), {}, &response)
        .error_code();
  };
  const auto score = [&] {
    const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
    const auto stream = stub->Score(context.get());
    stream->WritesDone();
    return stream->Finish().error_code();
  };
  EXPECT_EQ(describe(), grpc::UNAVAILABLE);
  EXPECT_EQ(score(), grpc::UNAVAILABLE);
  EXPECT_EQ(service.Serves("oxbow.v1.Reward/constant"), false);
  service.Open(panel, metrics);
  EXPECT_EQ(describe(), grpc::OK);
  EXPECT_EQ(score(), grpc::OK);
  EXPECT_EQ(service.Serves("oxbow.v1.Reward/constant"), true);
}

// A scorer of batches of eight, whose every score is the width.
class BatchScorer final : public Scorer {
 public:
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(absl::Span<const Item> items) override {
    std::vector<absl::StatusOr<reward::Score>> scores;
    for (const Item& item : items) {
      scores.emplace_back(reward::Score{.value = static_cast<double>(item.picture().width)});
    }
    return scores;
  }

 private:
  const RewardFacts facts_{.name = "width", .value_max = 9, .batch_max = 8};
};

// Compares the items of a group: each item's score is their number.
class GroupScorer final : public Scorer {
 public:
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(absl::Span<const Item> items) override {
    return std::vector<absl::StatusOr<reward::Score>>(
        items.size(), reward::Score{.value = static_cast<double>(items.size())});
  }

 private:
  const RewardFacts facts_{.name = "count", .value_max = 9, .groupwise = true};
};

TEST(RewardServiceLoadTest, AGroupWithAWrongItemHasNoScores) {
  std::vector<std::unique_ptr<Scorer>> scorers;
  scorers.push_back(std::make_unique<GroupScorer>());
  const ScorerPanel panel(std::move(scorers));
  prometheus::Registry registry;
  RewardMetrics metrics(registry, panel);
  RewardService service({}, panel, metrics, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service}).value();
  const auto stub = v1::Reward::NewStub(rpc::Connect(server->endpoint()));
  for (const bool wrong : {false, true}) {
    v1::ScoreRequest request;
    request.set_group_complete(true);
    for (int i = 0; i < 3; ++i) {
      v1::Image& image = *request.add_items()->mutable_image();
      request.mutable_items(i)->set_item(i);
      image.set_width(1);
      image.set_height(1);
      image.set_channels(1);
      image.set_pixels(wrong && i == 1 ? "xy" : "x");
    }
    const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
    const auto stream = stub->Score(context.get());
    stream->Write(request);
    stream->WritesDone();
    std::vector<int> codes;
    for (v1::ScoreResponse answer; stream->Read(&answer);) {
      codes.push_back(answer.status_code());
      EXPECT_EQ(answer.outcomes(0).value(), wrong ? 0 : 3);
    }
    EXPECT_TRUE(stream->Finish().ok());
    const int rest = grpc::FAILED_PRECONDITION;
    EXPECT_EQ(codes, wrong ? (std::vector<int>{rest, grpc::INVALID_ARGUMENT, rest})
                           : (std::vector<int>{0, 0, 0}));
  }
}

// Promise: Batches change no score.
TEST(RewardServiceLoadTest, CallersShareBatches) {
  std::vector<std::unique_ptr<Scorer>> scorers;
  scorers.push_back(std::make_unique<BatchScorer>());
  const ScorerPanel panel(std::move(scorers));
  prometheus::Registry registry;
  RewardMetrics metrics(registry, panel);
  RewardService service({.queue = {.batch_wait = absl::Minutes(1)}}, panel, metrics,
                        Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service}).value();
  const auto stub = v1::Reward::NewStub(rpc::Connect(server->endpoint()));
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const auto context = rpc::ContextWithDeadline(absl::Seconds(50));
      const auto stream = stub->Score(context.get());
      v1::ScoreRequest request;
      for (int k = 1; k <= 3; ++k) {
        v1::ScoreItem& item = *request.add_items();
        item.set_item(k);
        item.mutable_image()->set_width(k);
        item.mutable_image()->set_height(1);
        item.mutable_image()->set_channels(1);
        item.mutable_image()->set_pixels(std::string(k, 'x'));
      }
      stream->Write(request);
      stream->WritesDone();
      int answers = 0;
      for (v1::ScoreResponse answer; stream->Read(&answer); ++answers) {
        EXPECT_EQ(answer.outcomes(0).value(), static_cast<double>(answer.item()));
      }
      EXPECT_EQ(answers, 3);
      EXPECT_TRUE(stream->Finish().ok());
    });
  }
  for (std::thread& caller : callers) caller.join();
  const std::string text = telemetry::ScrapeText(registry);
  EXPECT_THAT(text, HasSubstr(R"(oxbow_reward_batch_fill_ratio_sum{reward="width"} 3)"));
  EXPECT_THAT(text, HasSubstr(R"(oxbow_reward_batch_fill_ratio_count{reward="width"} 3)"));
}

TEST(ScorerPanelTest, RefusesImagesThatDoNotHoldTogether) {
  const auto code = [](Image8 image) { return Validate(image).code(); };
  EXPECT_TRUE(
      Validate({.width = 2, .height = 1, .channels = 3, .pixels = std::vector<uint8_t>(6)}).ok());
  EXPECT_NE(code({.width = 2, .height = 1, .channels = 3, .pixels = std::vector<uint8_t>(5)}),
            absl::StatusCode::kOk);
  EXPECT_NE(code({.width = 0, .height = 1, .channels = 1, .pixels = {}}), absl::StatusCode::kOk);
  EXPECT_NE(code({.width = 1, .height = 1, .channels = 2, .pixels = std::vector<uint8_t>(2)}),
            absl::StatusCode::kOk);
  // 65536 * 65536 wraps to 0 in 32 bits.
  EXPECT_NE(code({.width = 65536, .height = 65536, .channels = 1, .pixels = {}}),
            absl::StatusCode::kOk);
}

// Says how many frames of how many calls it saw, and refuses prompts "no".
class CountingScorer final : public Scorer {
 public:
  explicit CountingScorer(RewardFacts facts) : facts_(std::move(facts)) {}
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(absl::Span<const Item> items) override {
    batches.push_back(items.size());
    std::vector<absl::StatusOr<reward::Score>> scores;
    for (const Item& item : items) {
      scores.emplace_back(reward::Score{.value = static_cast<double>(item.picture().width)});
      if (item.prompt == "no") scores.back() = absl::InvalidArgumentError("no");
    }
    return scores;
  }
  std::vector<size_t> batches;

 private:
  const RewardFacts facts_;
};

TEST(ScorerPanelTest, BatchesKeepTheScorersLimitAndTheItemsOrder) {
  CountingScorer scorer({.name = "width", .batch_max = 3});
  std::vector<Image8> images;
  for (int i = 0; i < 8; ++i) images.push_back({.width = i + 1, .height = 1, .pixels = {}});
  std::vector<Item> items;
  for (const Image8& image : images) items.push_back({.prompt = "yes", .frames = {&image, 1}});
  items[4].prompt = "no";
  items[5].frames = absl::MakeConstSpan(images).subspan(0, 2);
  const auto scores = ScoreItems(scorer, items);
  EXPECT_THAT(scorer.batches, ::testing::ElementsAre(3, 3, 3)) << "the video is two pictures";
  ASSERT_EQ(scores.size(), 8);
  for (int i = 0; i < 8; ++i) {
    if (i == 5) {
      EXPECT_EQ(scores[i].value().value, 1.5);
    } else if (i == 4) {
      EXPECT_EQ(scores[i].status().code(), absl::StatusCode::kInvalidArgument);
    } else {
      EXPECT_EQ(scores[i].value().value, i + 1);
    }
  }
}

TEST(ScorerPanelTest, NamesMustBeKnownAndDistinct) {
  v1::ScorerConfig known;
  known.set_name("digits_ocr");
  v1::ScorerConfig unknown;
  unknown.set_name("aesthetic");
  EXPECT_TRUE(ScorerPanel::Create({known}).ok());
  EXPECT_FALSE(ScorerPanel::Create({}).ok());
  EXPECT_FALSE(ScorerPanel::Create({known, known}).ok());
  EXPECT_FALSE(ScorerPanel::Create({unknown}).ok());
}

}  // namespace
}  // namespace oxbow::reward
