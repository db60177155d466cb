// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/batch_scoring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/fake_reward_server.h"

namespace oxbow::rollout {
namespace {

using reward::FakeRewardServer;

constexpr size_t kGroups = 8;

// A batch of groups of one picture each, and a server of a trained reward and an observed one. A
// request takes a second of the clock.
class BatchScoringTest : public ::testing::Test {
 protected:
  BatchScoringTest() {
    client_ = reward::RewardClient::Create(
                  {.endpoints = {server_.endpoint()},
                   .rewards = {"trained", "observed"},
                   .observed = {"observed"},
                   .shared = {.quick = absl::Seconds(60), .longest = absl::Seconds(60)}})
                  .value();
  }

  std::unique_ptr<BatchScoring> Batch() {
    std::vector<v1::Lease> leases(kGroups);
    std::vector<SampledGroup> groups(kGroups);
    for (size_t i = 0; i < kGroups; ++i) {
      leases[i].set_lease_id(i + 1);
      groups[i].media.push_back({{static_cast<int>(i) + 1, 1, 1, std::vector<uint8_t>(i + 1)}});
    }
    return std::make_unique<BatchScoring>(*client_, std::move(leases), std::move(groups), "run");
  }

  static void Add(v1::ScoreResponse& response, const std::string& name, double value, int code) {
    v1::RewardOutcome& outcome = *response.add_outcomes();
    outcome.set_name(name);
    outcome.set_value(value);
    outcome.set_status_code(code);
  }
  grpc::Status Answer(const v1::ScoreRequest& request, FakeRewardServer::Stream& stream) {
    clock_.Advance(absl::Seconds(1));
    for (const v1::ScoreItem& item : request.items()) {
      v1::ScoreResponse response;
      response.set_item(item.item());
      for (const std::string& name : request.rewards()) {
        Add(response, name, item.image().width(), name == "observed" && fails_ ? 3 : 0);
      }
      stream.Write(response);
    }
    return grpc::Status::OK;
  }

  FakeClock clock_;
  std::atomic<bool> fails_ = false;  // The observed reward.
  FakeRewardServer server_{
      {reward::Described("trained"), reward::Described("observed")},
      4,
      [this](const v1::ScoreRequest& request, FakeRewardServer::Stream& stream) {
        return Answer(request, stream);
      }};
  std::unique_ptr<reward::RewardClient> client_;
};

TEST_F(BatchScoringTest, TheTimeOfTheSharedCallIsEveryGroups) {
  const auto batch = Batch();
  for (size_t i = 0; i < kGroups; ++i) {
    EXPECT_EQ(batch->AskTogether(clock_), absl::Seconds(kGroups)) << i;
    EXPECT_EQ(batch->Score(i).at(0)->at("trained"), i + 1.0);
  }
  EXPECT_EQ(server_.requests().size(), kGroups) << "a complete group asks for nothing more";
}

TEST_F(BatchScoringTest, OfAGroupWithoutItsObservedRewardTheTrainedOneIsNotAskedForAgain) {
  fails_ = true;
  for (int time = 1; time <= 2; ++time) {
    SCOPED_TRACE(time);
    const size_t before = server_.requests().size();
    const auto batch = Batch();
    batch->AskTogether(clock_);
    EXPECT_EQ(server_.requests().size() - before, kGroups) << "calls are still shared";
    for (size_t i = 0; i < kGroups; ++i) {
      const auto scores = batch->Score(i);
      ASSERT_TRUE(scores.at(0).ok()) << scores.at(0).status();
      EXPECT_EQ(*scores[0], (reward::Scores{{"trained", i + 1.0}}));
    }
    const auto requests = server_.requests();
    ASSERT_GT(requests.size(), before + kGroups);
    for (size_t i = before + kGroups; i < requests.size(); ++i) {
      EXPECT_EQ(requests[i].rewards_size(), 1);
      EXPECT_EQ(requests[i].rewards(0), "observed");
    }
  }
}

}  // namespace
}  // namespace oxbow::rollout
