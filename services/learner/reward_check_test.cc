// SPDX-License-Identifier: Apache-2.0
#include "services/learner/reward_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::learner {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::map<std::string, reward::RewardFacts> Now(const std::string& identity) {
  return {{"pick", {.name = "pick", .identity = identity}}};
}

// Promise: A run keeps its rewards. The identity of each reward (weights, preprocessing, variant)
// is in the checkpoint. A resume with another is refused and names both, unless
// `--accept-reward-change` is given. Servers that disagree are refused; one that comes back as
// another is not asked.
TEST(RewardCheckTest, ARewardThatIsAnotherIsRefusedAndBothAreNamed) {
  const auto changed = CheckIdentities(Now("sha256:bb"), {{"pick", "sha256:aa"}});
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(changed.message()),
              AllOf(HasSubstr("reward pick"), HasSubstr("sha256:aa"), HasSubstr("sha256:bb"),
                    HasSubstr("--accept-reward-change")));
  EXPECT_TRUE(CheckIdentities(Now("sha256:aa"), {{"pick", "sha256:aa"}}).ok());
  // A reward that is new in the run, a server that does not know, a checkpoint of before.
  EXPECT_TRUE(CheckIdentities(Now("sha256:aa"), {{"ocr", "sha256:cc"}}).ok());
  EXPECT_TRUE(CheckIdentities(Now(""), {{"pick", "sha256:aa"}}).ok());
  EXPECT_TRUE(CheckIdentities(Now("sha256:aa"), {}).ok());
}

TEST(RewardCheckTest, WhatIsNotKnownNowIsRememberedFromBefore) {
  EXPECT_THAT(IdentitiesOf(Now("sha256:bb"), {{"ocr", "sha256:cc"}, {"pick", "sha256:aa"}}),
              ElementsAre(Pair("ocr", "sha256:cc"), Pair("pick", "sha256:bb")));
  EXPECT_THAT(IdentitiesOf(Now(""), {{"pick", "sha256:aa"}}),
              ElementsAre(Pair("pick", "sha256:aa")));
}

// Promise: A run waits for its reward servers.
TEST(RewardCheckTest, AServerThatDescribesItselfAndNeverScoresIsNamed) {
  absl::Notification released;
  reward::FakeRewardServer hung({reward::Described("pick")}, 1, [&](const auto&, auto&) {
    released.WaitForNotification();
    return grpc::Status::OK;
  });
  const auto rewards = reward::RewardClient::Connect({.endpoints = {hung.endpoint()},
                                                      .rewards = {"pick"},
                                                      .tries = 1000,
                                                      .timeout = absl::Seconds(1)})
                           .value();
  v1::Prompt prompt;
  prompt.set_text("a dog");
  std::string said;
  const Image8 grey{.width = 1, .height = 1, .channels = 1, .pixels = {128}};
  EXPECT_TRUE(CheckRewards(*rewards, {prompt}, {grey}, [&](const std::string& why) {
                said = why;
                rewards->Cancel();
              }).ok());
  EXPECT_EQ(said, absl::StrCat("reward server ", hung.endpoint(),
                               " gave no score for `pick` within 1 s (reward.timeout_seconds)"));
  released.Notify();
}

}  // namespace
}  // namespace oxbow::learner
