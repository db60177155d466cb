// SPDX-License-Identifier: Apache-2.0
// Several rewards on several servers: who is asked for what, and what a failure costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/synchronization/barrier.h"
#include "services/reward/reward_client.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::reward {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Stream = FakeRewardServer::Stream;

std::vector<Image8> Images(int count) {
  std::vector<Image8> images;
  for (int i = 1; i <= count; ++i) {
    images.push_back({.width = i, .height = 1, .pixels = std::vector<uint8_t>(i)});
  }
  return images;
}

// Has each reward answer: `fails` with that code, every other with the width of the image.
FakeRewardServer::Handler Answers(std::string fails = "",
                                  grpc::StatusCode code = grpc::StatusCode::INTERNAL) {
  return [fails, code](const v1::ScoreRequest& request, Stream& stream) {
    for (const v1::ScoreItem& item : request.items()) {
      v1::ScoreResponse response;
      response.set_item(item.item());
      for (const std::string& name : request.rewards()) {
        v1::RewardOutcome& outcome = *response.add_outcomes();
        outcome.set_name(name);
        if (name == fails) {
          outcome.set_status_code(code);
          outcome.set_status_message("out of memory");
          response.set_status_code(code);
        } else {
          outcome.set_value(item.image().width());
        }
      }
      stream.Write(response);
    }
    return grpc::Status::OK;
  };
}

std::vector<std::string> AskedFor(const FakeRewardServer& server) {
  std::vector<std::string> names;
  for (const v1::ScoreRequest& request : server.requests()) {
    for (const std::string& name : request.rewards()) names.push_back(name);
  }
  return names;
}

std::unique_ptr<RewardClient> ClientOf(std::vector<std::string> endpoints,
                                       std::vector<std::string> rewards,
                                       std::vector<std::string> observed = {},
                                       CircuitBreaker::Options breaker = {}) {
  auto client = RewardClient::Create({.endpoints = std::move(endpoints),
                                      .rewards = std::move(rewards),
                                      .observed = std::move(observed),
                                      .timeout = absl::Seconds(20),
                                      .breaker = breaker});
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

// Promise: An observed reward that fails touches nothing else. Its samples are trained on and
// evaluated as if it were not observed. Its failures are counted by reward, and its means are over
// the samples that have it. Nobody waits for its server.
TEST(RewardMixTest, AnObservedRewardThatFailsTakesNothingAlong) {
  FakeRewardServer server({Described("ocr"), Described("taste")}, 8, Answers("taste"));
  const auto client = ClientOf({server.endpoint()}, {"ocr", "taste"}, {"taste"});
  for (const auto& scores : ScorePictures(*client, "p", "", Images(3), {.waits = true})) {
    ASSERT_TRUE(scores.ok()) << scores.status();
    EXPECT_THAT(*scores, ElementsAre(Pair("ocr", ::testing::Gt(0))));
  }
  // Only what failed is asked for again.
  EXPECT_EQ(std::ranges::count(AskedFor(server), "ocr"), 1);
}

TEST(RewardMixTest, ATrainedRewardThatFailsIsTheImagesFailure) {
  FakeRewardServer server({Described("ocr"), Described("taste")}, 8, Answers("ocr"));
  const auto client = ClientOf({server.endpoint()}, {"ocr", "taste"}, {"taste"});
  for (const auto& scores : ScorePictures(*client, "p", "", Images(2))) {
    EXPECT_TRUE(IsUnscorable(scores.status())) << scores.status();
    EXPECT_THAT(std::string(scores.status().message()), HasSubstr("out of memory"));
  }
}

// Promise: An observed reward that fails touches nothing else.
TEST(RewardMixTest, NobodyWaitsForTheServerOfAnObservedReward) {
  FakeRewardServer ocr({Described("ocr")}, 8, Answers());
  auto taste = std::make_unique<FakeRewardServer>(
      std::vector<v1::RewardDescription>{Described("taste")}, 8, Answers());
  const auto client = ClientOf({ocr.endpoint(), taste->endpoint()}, {"ocr", "taste"}, {"taste"},
                               {.rest_first = absl::Hours(1), .rest_max = absl::Hours(1)});
  taste.reset();
  const auto results = ScorePictures(*client, "p", "", Images(2), {.waits = true});
  for (const auto& scores : results) EXPECT_THAT(*scores, ElementsAre(Pair("ocr", ::testing::_)));
}

// Promise: Rewards may be spread over servers. Each server is asked for what it has, and a name
// that none has is the error. A reward with an entry in `reward.scorers` is asked of the run's own
// servers alone. A run waits for a trained reward's server that hangs, and loses nothing. Rewards
// of one server fail and rest apart. Batches go out side by side. A groupwise reward gets its group
// whole, or gives no score.
TEST(RewardMixTest, EachServerIsAskedForWhatItHas) {
  FakeRewardServer ocr({Described("ocr")}, 8, Answers());
  FakeRewardServer both({Described("pick"), Described("taste")}, 2, Answers());
  const auto client = ClientOf({ocr.endpoint(), both.endpoint()}, {"taste", "ocr", "pick"});
  const auto results = ScorePictures(*client, "p", "", Images(4));
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(results[i].value(),
                ElementsAre(Pair("ocr", i + 1), Pair("pick", i + 1), Pair("taste", i + 1)));
  }
  EXPECT_THAT(ocr.batches(), ElementsAre(4));
  EXPECT_THAT(both.batches(), ElementsAre(2, 2));
  EXPECT_THAT(AskedFor(ocr), Each("ocr"));
  EXPECT_THAT(AskedFor(both), UnorderedElementsAre("taste", "pick", "taste", "pick"));
}

// Promise: Rewards may be spread over servers.
TEST(RewardMixTest, AServerIsNotAskedForWhatAnotherOneIsToHave) {
  FakeRewardServer elsewhere({Described("ocr"), Described("pick", "sha256:bb")}, 8, Answers());
  FakeRewardServer own({Described("pick", "sha256:aa")}, 8, Answers());
  const auto client = RewardClient::Create({.endpoints = {elsewhere.endpoint(), own.endpoint()},
                                            .rewards = {"ocr", "pick"},
                                            .not_asked = {{elsewhere.endpoint(), {"pick"}}}});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->Facts().at("pick").identity, "sha256:aa");
  for (int call = 0; call < 3; ++call) {
    for (const auto& scores : ScorePictures(**client, "p", "", Images(2))) EXPECT_TRUE(scores.ok());
  }
  EXPECT_THAT(AskedFor(elsewhere), Each("ocr"));
  EXPECT_THAT(AskedFor(own), ElementsAre("pick", "pick", "pick"));
}

// Promise: Rewards may be spread over servers.
TEST(RewardMixTest, ANameThatNoServerHasIsTheError) {
  FakeRewardServer ocr({Described("ocr")}, 8, Answers());
  FakeRewardServer pick({Described("pick")}, 8, Answers());
  const auto lacking = RewardClient::Create(
      {.endpoints = {ocr.endpoint(), pick.endpoint()}, .rewards = {"ocr", "hps"}});
  EXPECT_EQ(lacking.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(lacking.status().message()),
              AllOf(HasSubstr("hps"), HasSubstr("ocr, pick")));
  // It may be on the server that does not answer.
  const auto later = RewardClient::Create(
      {.endpoints = {ocr.endpoint(), "127.0.0.1:1"}, .rewards = {"ocr", "hps"}});
  EXPECT_EQ(later.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(later.status().message()), HasSubstr("127.0.0.1:1"));
}

// Promise: Rewards may be spread over servers.
TEST(RewardMixTest, BatchesOfAGroupGoOutSideBySide) {
  absl::Barrier all(4);
  const auto meet = [&](const v1::ScoreRequest& request, Stream& stream) {
    (void)all.Block();  // Returns once all four batches are here.
    return Answers()(request, stream);
  };
  FakeRewardServer a({Described("ocr")}, 2, meet);
  FakeRewardServer b({Described("ocr")}, 2, meet);
  const auto client = ClientOf({a.endpoint(), b.endpoint()}, {"ocr"});
  for (const auto& scores : ScorePictures(*client, "p", "", Images(8))) EXPECT_TRUE(scores.ok());
  EXPECT_EQ(a.batches().size(), 2);
  EXPECT_EQ(b.batches().size(), 2);
}

// Promise: Rewards may be spread over servers.
TEST(RewardMixTest, AGroupwiseRewardGetsItsGroupWholeOrIsTheError) {
  v1::RewardDescription rank = Described("rank");
  rank.set_groupwise(true);
  FakeRewardServer server({rank, Described("ocr")}, 4, Answers());
  const auto client = ClientOf({server.endpoint()}, {"ocr", "rank"});
  for (const auto& scores : ScorePictures(*client, "p", "", Images(4))) EXPECT_TRUE(scores.ok());
  uint64_t group = 0;
  for (const v1::ScoreRequest& request : server.requests()) {
    EXPECT_EQ(request.items_size(), 4);
    EXPECT_TRUE(request.group_complete());
    EXPECT_TRUE(group == 0 || group == request.group());
    group = request.group();
  }
  EXPECT_NE(group, 0);
  // Five do not fit one request of four.
  for (const auto& scores : ScorePictures(*client, "p", "", Images(5))) {
    EXPECT_EQ(scores.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(scores.status().message()), HasSubstr("rank"));
  }
}

// Promise: Rewards may be spread over servers.
TEST(RewardMixTest, ARewardThatIsAbsentOnOneServerIsAskedForOnAnother) {
  // The first loads its reward `pick`; its other reward goes on.
  FakeRewardServer loading({Described("ocr"), Described("pick")}, 8,
                           Answers("pick", grpc::StatusCode::UNAVAILABLE));
  FakeRewardServer ready({Described("ocr"), Described("pick")}, 8, Answers());
  const auto client = ClientOf({loading.endpoint(), ready.endpoint()}, {"ocr", "pick"}, {},
                               {.rest_first = absl::Hours(1), .rest_max = absl::Hours(1)});
  for (int call = 0; call < 3; ++call) {
    for (const auto& scores : ScorePictures(*client, "p", "", Images(2))) EXPECT_TRUE(scores.ok());
  }
  EXPECT_EQ(std::ranges::count(AskedFor(loading), "pick"), 1);
  EXPECT_GE(std::ranges::count(AskedFor(loading), "ocr"), 2);
}

// Promise: A run keeps its rewards.
TEST(RewardMixTest, TwoIdentitiesOfOneNameAreTheError) {
  FakeRewardServer a({Described("pick", "sha256:aa")}, 8, Answers());
  FakeRewardServer b({Described("pick", "sha256:bb")}, 8, Answers());
  const auto mixed =
      RewardClient::Create({.endpoints = {a.endpoint(), b.endpoint()}, .rewards = {"pick"}});
  EXPECT_EQ(mixed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mixed.status().message()),
              AllOf(HasSubstr("sha256:aa"), HasSubstr("sha256:bb"), HasSubstr(b.endpoint())));
  const auto one = ClientOf({a.endpoint()}, {"pick"});
  EXPECT_EQ(one->Facts().at("pick").identity, "sha256:aa");
}

// Promise: A run keeps its rewards.
TEST(RewardMixTest, AServerThatComesBackAsAnotherIsNotAsked) {
  auto server = std::make_unique<FakeRewardServer>(
      std::vector<v1::RewardDescription>{Described("pick", "sha256:aa")}, 8, Answers());
  const std::string endpoint = server->endpoint();
  const auto client = RewardClient::Create({.endpoints = {endpoint},
                                            .rewards = {"pick"},
                                            .identities = {{"pick", "sha256:aa"}},
                                            .breaker = {.rest_max = absl::Milliseconds(50)}})
                          .value();
  EXPECT_TRUE(ScorePictures(*client, "p", "", Images(1))[0].ok());
  server.reset();
  EXPECT_FALSE(ScorePictures(*client, "p", "", Images(1))[0].ok());
  server = std::make_unique<FakeRewardServer>(
      std::vector<v1::RewardDescription>{Described("pick", "sha256:bb")}, 8, Answers(), endpoint);
  EXPECT_TRUE(
      IsUnscorable(ScorePictures(*client, "p", "", Images(1), {.waits = true})[0].status()));
  EXPECT_TRUE(server->batches().empty());
}

TEST(RewardMixTest, AServerThatLostARewardIsNotAskedForItAgain) {
  FakeRewardServer changed({Described("ocr")}, 8, [](const v1::ScoreRequest&, Stream&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such reward");
  });
  const auto client = ClientOf({changed.endpoint()}, {"ocr"});
  const auto scores = ScorePictures(*client, "p", "", Images(1), {.waits = true});
  EXPECT_TRUE(IsUnscorable(scores[0].status())) << scores[0].status();
}

}  // namespace
}  // namespace oxbow::reward
