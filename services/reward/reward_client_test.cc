// SPDX-License-Identifier: Apache-2.0
#include "services/reward/reward_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <limits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "rpc/channel.h"
#include "rpc/protocol_revision.h"
#include "rpc/retry.h"
#include "services/reward/reward_client_impl.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::reward {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Stream = FakeRewardServer::Stream;
using Handler = FakeRewardServer::Handler;

// A server of the one reward `fake`, which takes batches of four.
class FakeReplica {
 public:
  explicit FakeReplica(Handler handler, const std::string& listen = "127.0.0.1:0")
      : server_({Described("fake")}, 4, std::move(handler), listen) {}
  const std::string& endpoint() const { return server_.endpoint(); }
  std::vector<int> batches() const { return server_.batches(); }
  void Speak(uint32_t protocol) { server_.Speak(protocol); }
  void EndCallsWith(const std::string& key, const std::string& value) {
    server_.EndCallsWith(key, value);
  }

 private:
  FakeRewardServer server_;
};

void Answer(Stream& stream, uint64_t item, double value) {
  v1::ScoreResponse response;
  response.set_item(item);
  response.add_rewards()->set_name("fake");
  response.mutable_rewards(0)->set_value(value);
  stream.Write(response);
}

// The score of an image is its width, so that swapped answers are detected.
double ValueOf(const v1::ScoreItem& item) { return item.image().width(); }

grpc::Status AnswerAll(const v1::ScoreRequest& request, Stream& stream) {
  for (int i = request.items_size() - 1; i >= 0; --i) {  // Any order is allowed.
    Answer(stream, request.items(i).item(), ValueOf(request.items(i)));
  }
  return grpc::Status::OK;
}

std::vector<Image8> Images(uint32_t count) {
  std::vector<Image8> images;
  for (uint32_t i = 0; i < count; ++i) {
    images.push_back({.width = static_cast<int>(i) + 1,
                      .height = 1,
                      .channels = 1,
                      .pixels = std::vector<uint8_t>(i + 1, 'x')});
  }
  return images;
}

std::unique_ptr<RewardClient> ClientOf(std::vector<std::string> endpoints,
                                       absl::Duration timeout = absl::Seconds(20),
                                       CircuitBreaker::Options breaker = {}) {
  auto client = RewardClient::Create({.endpoints = std::move(endpoints),
                                      .rewards = {"fake"},
                                      .tries = 3,
                                      .timeout = timeout,
                                      .breaker = breaker});
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

void ExpectAllScored(const std::vector<absl::StatusOr<Scores>>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i].ok()) << results[i].status();
    EXPECT_EQ(results[i]->at("fake"), i + 1);
  }
}

TEST(RewardClientTest, SplitsIntoBatchesAndTakesReplicasInTurn) {
  FakeReplica a(AnswerAll);
  FakeReplica b(AnswerAll);
  ExpectAllScored(ScorePictures(*ClientOf({a.endpoint(), b.endpoint()}), "p", "", Images(11)));
  std::vector<int> batches = a.batches();  // They go out side by side.
  EXPECT_THAT(batches.size(), AnyOf(1, 2));
  for (const int size : b.batches()) batches.push_back(size);
  EXPECT_THAT(batches, UnorderedElementsAre(4, 4, 3));
}

TEST(RewardClientTest, RestOfABatchGoesToAnotherReplicaWhenOneDies) {
  FakeReplica dying([](const v1::ScoreRequest& request, Stream& stream) {
    Answer(stream, request.items(0).item(), ValueOf(request.items(0)));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
  });
  FakeReplica healthy(AnswerAll);
  const auto client = ClientOf({dying.endpoint(), healthy.endpoint()}, absl::Seconds(20),
                               {.rest_first = absl::Hours(1), .rest_max = absl::Hours(1)});
  ExpectAllScored(ScorePictures(*client, "p", "", Images(4)));
  EXPECT_THAT(dying.batches(), ElementsAre(4));
  EXPECT_THAT(healthy.batches(), ElementsAre(3));
  // The replica rests: the next batches do not try it.
  ExpectAllScored(ScorePictures(*client, "p", "", Images(4)));
  ExpectAllScored(ScorePictures(*client, "p", "", Images(4)));
  EXPECT_EQ(dying.batches().size(), 1);
}

TEST(RewardClientTest, ScoreThatIsNotFiniteIsAnErrorOfThatImage) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    FakeReplica replica([&](const v1::ScoreRequest& request, Stream& stream) {
      for (const v1::ScoreItem& item : request.items()) {
        Answer(stream, item.item(), item.item() == 0 ? value : 2);
      }
      return grpc::Status::OK;
    });
    const auto results = ScorePictures(*ClientOf({replica.endpoint()}), "p", "", Images(2));
    EXPECT_TRUE(IsUnscorable(results[0].status()));
    EXPECT_THAT(std::string(results[0].status().message()), HasSubstr("not finite"));
    EXPECT_TRUE(results[1].ok());
    EXPECT_THAT(replica.batches(), ElementsAre(2, 1, 1));
  }
}

TEST(RewardClientTest, ReplicaThatNeverAnswersRunsIntoTheDeadline) {
  absl::Notification released;
  FakeReplica silent([&](const v1::ScoreRequest&, Stream&) {
    released.WaitForNotificationWithTimeout(absl::Seconds(20));
    return grpc::Status::OK;
  });
  const auto alone = ClientOf({silent.endpoint()}, absl::Milliseconds(100));
  for (const auto& result : ScorePictures(*alone, "p", "", Images(2))) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << result.status();
    EXPECT_FALSE(IsUnscorable(result.status()));
  }
  FakeReplica healthy(AnswerAll);
  const auto both = ClientOf({silent.endpoint(), healthy.endpoint()}, absl::Milliseconds(300));
  ExpectAllScored(ScorePictures(*both, "p", "", Images(2)));
  released.Notify();
}

// Promise: A picture that cannot be scored is drawn once.
TEST(RewardClientTest, AnErrorOfAnItemOrACallIsAskedForAgainAndThenTheImages) {
  for (const grpc::StatusCode code : {grpc::INVALID_ARGUMENT, grpc::UNAVAILABLE}) {
    FakeReplica by_item([&](const v1::ScoreRequest& request, Stream& stream) {
      v1::ScoreResponse response;
      response.set_item(request.items(0).item());
      response.set_status_code(code);
      response.set_status_message("no such prompt");
      stream.Write(response);
      return grpc::Status::OK;
    });
    const auto results = ScorePictures(*ClientOf({by_item.endpoint()}), "p", "", Images(1));
    EXPECT_TRUE(IsUnscorable(results[0].status())) << "the server answers";
    EXPECT_THAT(std::string(results[0].status().message()), HasSubstr("no such prompt"));
    // "This item cannot be scored" is said once.
    const bool final = code == grpc::INVALID_ARGUMENT;
    EXPECT_EQ(IsFinal(results[0].status()), final);
    EXPECT_EQ(by_item.batches().size(), final ? 1u : 3u);
  }
  for (const grpc::StatusCode code : {grpc::INVALID_ARGUMENT, grpc::UNKNOWN}) {
    FakeReplica by_call(
        [&](const v1::ScoreRequest&, Stream&) { return grpc::Status(code, "CUDA out of memory"); });
    const auto refused = ScorePictures(*ClientOf({by_call.endpoint()}), "p", "", Images(1));
    EXPECT_TRUE(IsUnscorable(refused[0].status()));
    EXPECT_FALSE(IsFinal(refused[0].status())) << "it was said of a call, not of an image";
    EXPECT_THAT(std::string(refused[0].status().message()), HasSubstr("CUDA out of memory"));
    EXPECT_THAT(by_call.batches(), ElementsAre(1, 1, 1));
  }
}

// Promise: A score is never made up.
TEST(RewardClientTest, AnImageThatBreaksItsCallTakesNoOtherAlong) {
  FakeReplica replica([](const v1::ScoreRequest& request, Stream& stream) {
    for (const v1::ScoreItem& item : request.items()) {
      if (item.image().width() == 2) return grpc::Status(grpc::StatusCode::UNKNOWN, "bad image");
    }
    return AnswerAll(request, stream);
  });
  const auto results = ScorePictures(*ClientOf({replica.endpoint()}), "p", "", Images(4));
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].ok(), i != 1) << i;
  EXPECT_THAT(replica.batches(), ElementsAre(4, 4, 1, 1, 1, 1));
}

// Waits for something that another thread brings about; a deadline, not a duration.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) poll(nullptr, 0, 10);
  return condition();
}

// Promise: A run waits for its reward servers.
TEST(RewardClientTest, APatientCallWaitsUntilAServerComesBack) {
  auto replica = std::make_unique<FakeReplica>(AnswerAll);
  const std::string endpoint = replica->endpoint();
  const auto client =
      ClientOf({endpoint}, absl::Seconds(20), {.rest_max = absl::Milliseconds(300)});
  replica.reset();
  std::vector<absl::StatusOr<Scores>> results;
  std::thread caller(
      [&] { results = ScorePictures(*client, "p", "", Images(3), {.waits = true}); });
  EXPECT_TRUE(Eventually([&] { return client->waiting() != ""; }));
  EXPECT_THAT(client->waiting(), HasSubstr(endpoint));
  // An impatient call of the same client does not wait.
  for (const auto& result : ScorePictures(*client, "p", "", Images(1))) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
  }
  replica = std::make_unique<FakeReplica>(AnswerAll, endpoint);
  caller.join();
  ExpectAllScored(results);
  EXPECT_EQ(client->waiting(), "");
}

// Promise: A run waits for its reward servers.
TEST(RewardClientTest, AServerThatHangsIsNamedAfterItsFirstSilence) {
  absl::Notification released;
  FakeReplica hung([&](const v1::ScoreRequest& request, Stream& stream) {
    released.WaitForNotification();
    return AnswerAll(request, stream);
  });
  const auto client = RewardClient::Create({.endpoints = {hung.endpoint()},
                                            .rewards = {"fake"},
                                            .tries = 1000,
                                            .timeout = absl::Milliseconds(300)})
                          .value();
  std::thread caller([&] { ScorePictures(*client, "p", "", Images(1), {.waits = true}); });
  EXPECT_TRUE(Eventually([&] { return client->waiting() != ""; }));
  EXPECT_EQ(client->waiting(),
            absl::StrCat("reward server ", hung.endpoint(),
                         " gave no score for `fake` within 0.3 s (reward.timeout_seconds)"));
  client->Cancel();
  caller.join();
  released.Notify();
}

// Promise: A run waits for its reward servers.
TEST(RewardClientTest, WhoGivesUpWaitingOrCancelsIsAnsweredAtOnce) {
  const std::string gone = FakeReplica(AnswerAll).endpoint();
  absl::Notification asked;
  absl::Notification released;
  FakeReplica silent([&](const v1::ScoreRequest&, Stream&) {
    if (!asked.HasBeenNotified()) asked.Notify();
    released.WaitForNotification();
    return grpc::Status::OK;
  });
  const auto client = ClientOf({silent.endpoint()}, absl::Hours(1));
  std::vector<absl::StatusOr<Scores>> cancelled;
  std::thread caller(
      [&] { cancelled = ScorePictures(*client, "p", "", Images(2), {.waits = true}); });
  asked.WaitForNotification();
  client->Cancel();
  caller.join();
  for (const auto& result : cancelled) EXPECT_TRUE(absl::IsCancelled(result.status()));
  EXPECT_TRUE(absl::IsCancelled(ScorePictures(*client, "p", "", Images(1))[0].status()));
  EXPECT_TRUE(absl::IsCancelled(client->Describe()));
  EXPECT_TRUE(absl::IsCancelled(client->AwaitDescription()));
  released.Notify();

  const auto absent = RewardClient::Connect({.endpoints = {gone}, .rewards = {"fake"}}).value();
  std::vector<absl::StatusOr<Scores>> left;
  std::thread waiter([&] { left = ScorePictures(*absent, "p", "", Images(1), {.waits = true}); });
  EXPECT_TRUE(Eventually([&] { return absent->waiting() != ""; }));
  absent->GiveUpWaiting();
  waiter.join();
  EXPECT_EQ(left[0].status().code(), absl::StatusCode::kUnavailable);
}

// Promise: A busy server costs no group.
TEST(RewardClientTest, BusyReplicasAreAskedAgainAndThatCostsNoTry) {
  std::atomic<int> refusals = 7;  // More than tries over both.
  const auto refuse_first = [&](const v1::ScoreRequest& request, Stream& stream) {
    if (refusals-- > 0) return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy");
    return AnswerAll(request, stream);
  };
  FakeReplica a(refuse_first);
  FakeReplica b(refuse_first);
  const auto client = ClientOf({a.endpoint(), b.endpoint()}, absl::Seconds(20),
                               {.rest_max = absl::Milliseconds(50)});
  ExpectAllScored(ScorePictures(*client, "p", "", Images(4)));
  EXPECT_EQ(a.batches().size() + b.batches().size(), 8u);

  refusals = 1 << 20;
  const auto results =
      ScorePictures(*client, "p", "", Images(1), {.limit = absl::Milliseconds(300)});
  EXPECT_EQ(results[0].status().code(), absl::StatusCode::kUnavailable);
}

// Promise: A busy server costs no group.
TEST(RewardClientTest, ABusyServerIsLeftAloneForThePauseThatItAsksForAndNoLongerThanTheDeadline) {
  std::atomic<int> refusals = 1;
  FakeReplica busy([&](const v1::ScoreRequest& request, Stream& stream) {
    if (refusals-- <= 0) return AnswerAll(request, stream);
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy");
  });
  busy.EndCallsWith(rpc::kRetryAfterKey, "400");
  const auto client =
      ClientOf({busy.endpoint()}, absl::Seconds(20), {.rest_first = absl::Milliseconds(1)});
  const absl::Duration start = Clock::Steady().Now();
  ExpectAllScored(ScorePictures(*client, "p", "", Images(2)));
  EXPECT_GE(Clock::Steady().Now() - start, absl::Milliseconds(400));
  EXPECT_THAT(busy.batches(), ElementsAre(2, 2));

  refusals = 1;
  busy.EndCallsWith(rpc::kRetryAfterKey, "3600000");
  const auto results =
      ScorePictures(*client, "p", "", Images(1), {.limit = absl::Milliseconds(300)});
  EXPECT_EQ(results[0].status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(results[0].status().message()), HasSubstr("busy"));
  EXPECT_THAT(busy.batches(), ElementsAre(2, 2, 1));
}

TEST(RewardClientTest, APauseThatIsNoNumberIsNoPause) {
  std::atomic<int> refusals = 0;
  FakeReplica busy([&](const v1::ScoreRequest& request, Stream& stream) {
    if (refusals-- <= 0) return AnswerAll(request, stream);
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy");
  });
  const auto client =
      ClientOf({busy.endpoint()}, absl::Seconds(20), {.rest_max = absl::Milliseconds(1)});
  for (const std::string pause : {"soon", "-1", "99999999999999999999", "86400001", ""}) {
    refusals = 1;
    busy.EndCallsWith(rpc::kRetryAfterKey, pause);
    ExpectAllScored(ScorePictures(*client, "p", "", Images(1), {.limit = absl::Seconds(10)}));
  }
}

TEST(RewardClientTest, MissingAnswerIsAskedForAgainAndThenAnError) {
  FakeReplica forgetful([](const v1::ScoreRequest&, Stream&) { return grpc::Status::OK; });
  const auto results = ScorePictures(*ClientOf({forgetful.endpoint()}), "p", "", Images(1));
  EXPECT_TRUE(IsUnscorable(results[0].status()));
  EXPECT_THAT(forgetful.batches(), ElementsAre(1, 1, 1));
}

TEST(RewardClientTest, CreateNamesWhatIsMissing) {
  EXPECT_EQ(RewardClient::Create({}).status().code(), absl::StatusCode::kInvalidArgument);
  FakeReplica replica(AnswerAll);
  const auto lacking =
      RewardClient::Create({.endpoints = {replica.endpoint()}, .rewards = {"hps"}});
  EXPECT_EQ(lacking.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(lacking.status().message()), HasSubstr("hps"));
  // Port 1 is never one of our servers.
  const auto absent = RewardClient::Create({.endpoints = {"127.0.0.1:1"}, .rewards = {"fake"}});
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kUnavailable);
  // One replica of two is enough to start, and to score.
  ExpectAllScored(
      ScorePictures(*ClientOf({"127.0.0.1:1", replica.endpoint()}), "p", "", Images(3)));
}

// Promise: Processes of one run speak one protocol.
TEST(RewardClientTest, AServerOfAnotherRevisionIsRefusedInOneLine) {
  FakeReplica replica(AnswerAll);
  const auto create = [&](uint32_t revision) {
    replica.Speak(revision);
    return RewardClient::Create({.endpoints = {replica.endpoint()}, .rewards = {"fake"}}).status();
  };
  EXPECT_TRUE(create(0).ok()) << "a server of others need not say it";
  EXPECT_TRUE(create(kProtocolRevision).ok());
  const absl::Status refused = create(kProtocolRevision + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(
      std::string(refused.message()),
      ::testing::AllOf(HasSubstr("the reward server at " + replica.endpoint()),
                       HasSubstr("run one version of oxbow"), ::testing::Not(HasSubstr("\n"))));
}

// As a server with gRPC's default options ends it: with a GOAWAY after three pings.
// Promise: A server that is not ours is not cut off.
TEST(ServerLineTest, AfterTooManyPingsANewConnectionHasFew) {
  FakeReplica replica(AnswerAll);
  ServerLine line(replica.endpoint(), rpc::Pings::kDuringCalls);
  const auto first = line.stub();
  for (const absl::Status& other : {absl::OkStatus(), absl::UnavailableError("Socket closed"),
                                    absl::InternalError("too many pings for this reward")}) {
    line.Ended(other);
    EXPECT_EQ(line.pings(), rpc::Pings::kDuringCalls) << other;
  }
  line.Ended(absl::UnavailableError("Too many pings"));
  EXPECT_EQ(line.pings(), rpc::Pings::kRarely);
  EXPECT_NE(line.stub(), first);
  v1::DescribeResponse response;
  EXPECT_TRUE(
      line.stub()->Describe(rpc::ContextWithDeadline(absl::Seconds(20)).get(), {}, &response).ok());
}

}  // namespace
}  // namespace oxbow::reward
