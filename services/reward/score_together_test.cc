// SPDX-License-Identifier: Apache-2.0
// Several groups in one call: what each of them gets is what it would get alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/philox.h"
#include "services/reward/reward_client.h"
#include "services/reward/shared_calls.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::reward {
namespace {

using ::testing::Each;
using ::testing::Eq;
using Stream = FakeRewardServer::Stream;

TEST(DealGroupsTest, EveryCallKeepsTheLimitsAndServersHaveTurns) {
  const SharedCallLimits limits{.groups = 5, .bytes = 1000};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomStream random({.seed = seed});
    std::vector<uint64_t> bytes(random.NextBelow(40));
    for (uint64_t& of_group : bytes)
      of_group = random.NextBelow(10) == 0 ? 1001 : random.NextBelow(600);
    const size_t servers = 1 + random.NextBelow(3);
    std::set<size_t> dealt;
    for (const std::vector<size_t>& call : DealGroups(bytes, servers, limits)) {
      EXPECT_GE(call.size(), 2u);
      EXPECT_LE(call.size(), limits.groups);
      uint64_t sum = 0;
      for (const size_t group : call) {
        EXPECT_TRUE(dealt.insert(group).second) << "dealt twice";
        EXPECT_EQ(group % servers, call.front() % servers);
        sum += bytes[group];
      }
      EXPECT_LE(sum, limits.bytes);
    }
    // Who is left out is too large, or had nobody beside it: two neighbours of one server that fit
    // together are never both left out.
    for (size_t i = 0; i + servers < bytes.size(); ++i) {
      if (dealt.contains(i) || dealt.contains(i + servers)) continue;
      EXPECT_GT(std::max({bytes[i], bytes[i + servers], bytes[i] + bytes[i + servers]}),
                limits.bytes);
    }
  }
}

TEST(SharedCallRestTest, ACallThatDoesNotPayIsFollowedByLongerAndLongerRests) {
  SharedCallRest rest;
  const auto rested = [&] {
    int times = 0;
    while (!rest.Tries()) ++times;
    return times;
  };
  EXPECT_EQ(rested(), 0);
  int before = 0;
  for (int i = 0; i < 4; ++i) {
    rest.DidNotPay();
    const int now = rested();
    EXPECT_GT(now, before);
    before = now;
  }
  for (int i = 0; i < 20; ++i) rest.DidNotPay();
  EXPECT_LE(rested(), 1024);
  rest.Paid();
  EXPECT_EQ(rested(), 0);
}

// The score of an image is its width, so that swapped answers are detected.
double ValueOf(const v1::ScoreItem& item) { return item.image().width(); }

void Answer(Stream& stream, uint64_t item, double value, int code = 0) {
  v1::ScoreResponse response;
  response.set_item(item);
  v1::RewardOutcome& outcome = *response.add_outcomes();
  outcome.set_name("fake");
  outcome.set_value(value);
  outcome.set_status_code(code);
  response.set_status_code(code);
  stream.Write(response);
}

// What to do with a request, which is the n-th of its call.
using Rule = std::function<grpc::Status(const v1::ScoreRequest&, size_t n, Stream&)>;

grpc::Status AnswerAll(const v1::ScoreRequest& request, Stream& stream) {
  for (int i = request.items_size() - 1; i >= 0; --i) {  // Any order is allowed.
    Answer(stream, request.items(i).item(), ValueOf(request.items(i)));
  }
  return grpc::Status::OK;
}

// Four groups of one to four images, each of another width, and a server of one reward.
class ScoreTogetherTest : public ::testing::Test {
 protected:
  ScoreTogetherTest() {
    int width = 1;
    for (size_t group = 0; group < 4; ++group) {
      for (size_t i = 0; i <= group; ++i, ++width) {
        images_[group].push_back(
            {width, 1, 1, std::vector<uint8_t>(static_cast<size_t>(width), 9)});
      }
    }
  }

  std::unique_ptr<RewardClient> Serve(Rule rule, std::vector<v1::RewardDescription> rewards = {
                                                     Described("fake")}) {
    ForgetCalls();
    servers_.push_back(std::make_unique<FakeRewardServer>(
        std::move(rewards), 4, [this, rule](const v1::ScoreRequest& request, Stream& stream) {
          size_t n = 0;
          {
            absl::MutexLock lock(&mutex_);
            n = of_call_[&stream]++;
          }
          return rule(request, n, stream);
        }));
    std::vector<std::string> endpoints;
    for (const auto& server : servers_) endpoints.push_back(server->endpoint());
    return RewardClient::Create(
               {.endpoints = endpoints,
                .tries = 1,
                .clock = clock_,
                .shared = {.quick = absl::Seconds(60), .longest = absl::Seconds(60)}})
        .value();
  }

  std::vector<Frames> MediaOf(size_t group) const {
    std::vector<Frames> media;
    for (const Image8& image : images_[group]) media.emplace_back(&image, 1);
    return media;
  }
  std::vector<RewardClient::Group> Groups() const {
    std::vector<RewardClient::Group> groups;
    for (size_t i = 0; i < 4; ++i) groups.push_back({"p", "", MediaOf(i)});
    return groups;
  }
  void ExpectScores(size_t group, const std::optional<std::vector<Scores>>& scores) const {
    ASSERT_TRUE(scores.has_value()) << group;
    ASSERT_EQ(scores->size(), images_[group].size());
    for (size_t i = 0; i < scores->size(); ++i) {
      EXPECT_EQ((*scores)[i].at("fake"), images_[group][i].width);
    }
  }
  // As a worker goes on with a group that has no scores yet.
  void ExpectScoresAlone(RewardClient& client, size_t group) {
    ForgetCalls();
    const auto alone = client.ScoreMedia("p", "", MediaOf(group));
    for (size_t i = 0; i < alone.size(); ++i) {
      ASSERT_TRUE(alone[i].ok()) << alone[i].status();
      EXPECT_EQ(alone[i]->at("fake"), images_[group][i].width);
    }
  }
  // A stream may have the address of an earlier one.
  void ForgetCalls() {
    absl::MutexLock lock(&mutex_);
    of_call_.clear();
  }
  size_t calls() const {
    absl::MutexLock lock(&mutex_);
    return of_call_.size();
  }

  const Clock* clock_ = &Clock::Steady();  // The client's.
  std::vector<Image8> images_[4];
  mutable absl::Mutex mutex_;
  std::map<Stream*, size_t> of_call_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<FakeRewardServer>> servers_;
};

TEST_F(ScoreTogetherTest, GroupsShareACallAndEachIsARequestOfItsOwn) {
  v1::RewardDescription compares = Described("fake");
  compares.set_groupwise(true);
  const auto client =
      Serve([](const auto& request, size_t, Stream& stream) { return AnswerAll(request, stream); },
            {compares});
  const auto scores = client->ScoreTogether(Groups());
  for (size_t i = 0; i < 4; ++i) ExpectScores(i, scores[i]);
  EXPECT_EQ(calls(), 1u);
  std::set<uint64_t> groups, items;
  const auto requests = servers_[0]->requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].items_size(), static_cast<int>(i) + 1);
    EXPECT_TRUE(requests[i].group_complete());
    EXPECT_TRUE(groups.insert(requests[i].group()).second);
    for (const auto& item : requests[i].items()) EXPECT_TRUE(items.insert(item.item()).second);
  }
  EXPECT_EQ(groups.size(), 4u);
  const auto again = client->ScoreTogether(Groups());  // A call that pays is followed by others.
  for (size_t i = 0; i < 4; ++i) ExpectScores(i, again[i]);
}

TEST_F(ScoreTogetherTest, AnItemWithoutAScoreCostsItsGroupAlone) {
  for (const int code : {3, 14}) {  // INVALID_ARGUMENT, UNAVAILABLE
    const auto client = Serve([code](const auto& request, size_t n, Stream& stream) {
      for (const v1::ScoreItem& item : request.items()) {
        const bool bad = n == 1 && item.image().width() == 3;
        Answer(stream, item.item(), bad ? 0 : ValueOf(item), bad ? code : 0);
      }
      return grpc::Status::OK;
    });
    const auto scores = client->ScoreTogether(Groups());
    EXPECT_FALSE(scores[1].has_value());
    for (const size_t i : {0, 2, 3}) ExpectScores(i, scores[i]);
    ExpectScoresAlone(*client, 1);  // It is the first request of its own call.
    servers_.clear();
  }
}

TEST_F(ScoreTogetherTest, ACallThatEndsKeepsTheGroupsThatWereScoredAndTheOthersGoAlone) {
  for (const auto code : {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::RESOURCE_EXHAUSTED,
                          grpc::StatusCode::UNAVAILABLE}) {
    const auto client = Serve([code](const auto& request, size_t n, Stream& stream) {
      if (n == 2) return grpc::Status(code, "no");
      return AnswerAll(request, stream);
    });
    const auto scores = client->ScoreTogether(Groups());
    for (const size_t i : {0, 1}) ExpectScores(i, scores[i]);
    for (const size_t i : {2, 3}) {
      EXPECT_FALSE(scores[i].has_value());
      ExpectScoresAlone(*client, i);  // Also where the breaker would rest, had the try counted.
    }
    servers_.clear();
  }
}

TEST_F(ScoreTogetherTest, ScoresThatAreNoNumbersOrOfNobodyAreNotTaken) {
  const auto client = Serve([](const auto& request, size_t n, Stream& stream) {
    Answer(stream, 1'000'000, 1);
    for (const v1::ScoreItem& item : request.items()) {
      Answer(stream, item.item(),
             n == 0 ? std::numeric_limits<double>::quiet_NaN() : ValueOf(item));
    }
    return grpc::Status::OK;
  });
  const auto scores = client->ScoreTogether(Groups());
  EXPECT_FALSE(scores[0].has_value());
  for (const size_t i : {1, 2, 3}) ExpectScores(i, scores[i]);
}

TEST_F(ScoreTogetherTest, AfterACallThatDidNotPayGroupsGoAlone) {
  const auto client = Serve(
      [](const auto&, size_t, Stream&) { return grpc::Status(grpc::StatusCode::INTERNAL, "no"); });
  EXPECT_THAT(client->ScoreTogether(Groups()), Each(Eq(std::nullopt)));
  const size_t asked = servers_[0]->requests().size();
  EXPECT_GE(asked, 1u);
  EXPECT_THAT(client->ScoreTogether(Groups()), Each(Eq(std::nullopt)));
  EXPECT_EQ(servers_[0]->requests().size(), asked);
}

TEST_F(ScoreTogetherTest, WhatBatchesByItselfOrIsLargeIsNotShared) {
  v1::RewardDescription batches = Described("fake");
  batches.set_batch_max(16);
  const auto rule = [](const auto& request, size_t, Stream& stream) {
    return AnswerAll(request, stream);
  };
  EXPECT_THAT(Serve(rule, {batches})->ScoreTogether(Groups()), Each(Eq(std::nullopt)));
  servers_.clear();
  const auto client = Serve(rule);
  EXPECT_THAT(client->ScoreTogether({Groups()[0]}), Each(Eq(std::nullopt)))
      << "nobody to share with";
  for (auto& images : images_) images = {{2048, 600, 1, std::vector<uint8_t>(2048 * 600)}};
  EXPECT_THAT(client->ScoreTogether(Groups()), Each(Eq(std::nullopt)));
  EXPECT_TRUE(servers_[0]->requests().empty());
}

TEST_F(ScoreTogetherTest, ReplicasHaveTheirTurns) {
  const auto rule = [](const auto& request, size_t, Stream& stream) {
    return AnswerAll(request, stream);
  };
  (void)Serve(rule);
  const auto client = Serve(rule);
  const auto scores = client->ScoreTogether(Groups());
  for (size_t i = 0; i < 4; ++i) ExpectScores(i, scores[i]);
  for (const auto& server : servers_) EXPECT_EQ(server->requests().size(), 2u);
}

// A server takes four images a request, so the first group is two batches, and the others are one.
TEST_F(ScoreTogetherTest, AGroupThatIsCutGoesAloneAndTheOthersShare) {
  images_[0].assign(5, {1, 1, 1, std::vector<uint8_t>(1, 9)});
  const auto client =
      Serve([](const auto& request, size_t, Stream& stream) { return AnswerAll(request, stream); });
  const auto scores = client->ScoreTogether(Groups());
  EXPECT_FALSE(scores[0].has_value());
  for (const size_t i : {1, 2, 3}) ExpectScores(i, scores[i]);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(servers_[0]->requests().size(), 3u);
}

// The caller that takes a breaker's only trial must say what came of it. A first try does not, so
// it leaves the trial to the groups that then go alone. What was not asked is no reason to rest.
TEST_F(ScoreTogetherTest, AServerThatFailedIsLeftToGroupsAlone) {
  FakeClock clock;
  clock_ = &clock;
  for (const bool describes_again : {false, true}) {
    SCOPED_TRACE(describes_again);
    std::atomic<bool> down = true;
    const auto client = Serve([&](const auto& request, size_t, Stream& stream) {
      if (!down) return AnswerAll(request, stream);
      if (describes_again) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no");
      for (const v1::ScoreItem& item : request.items()) Answer(stream, item.item(), 0, 14);
      return grpc::Status::OK;
    });
    EXPECT_FALSE(client->ScoreMedia("p", "", MediaOf(0))[0].ok());
    const size_t asked = servers_[0]->requests().size();
    ASSERT_GE(asked, 1u);
    down = false;
    for (int times = 0; times < 3; ++times) {
      clock.Advance(absl::Seconds(20));  // Longer than any rest of a breaker.
      EXPECT_THAT(client->ScoreTogether(Groups()), Each(Eq(std::nullopt)));
    }
    EXPECT_EQ(servers_[0]->requests().size(), asked) << "the trial is left";
    ExpectScoresAlone(*client, 0);
    const auto scores = client->ScoreTogether(Groups());
    for (size_t i = 0; i < 4; ++i) ExpectScores(i, scores[i]);
    servers_.clear();
  }
}

TEST_F(ScoreTogetherTest, CancelEndsItAndLaterOnes) {
  absl::Notification asked, over;
  const auto client = Serve([&](const auto&, size_t n, Stream&) {
    if (n == 0) asked.Notify();
    over.WaitForNotification();
    return grpc::Status::OK;
  });
  std::thread canceller([&] {
    asked.WaitForNotification();
    client->Cancel();
  });
  EXPECT_THAT(client->ScoreTogether(Groups()), Each(Eq(std::nullopt)));
  EXPECT_THAT(client->ScoreTogether(Groups()), Each(Eq(std::nullopt)));
  canceller.join();
  over.Notify();
  servers_.clear();  // Its handlers use what is above.
}

}  // namespace
}  // namespace oxbow::reward
