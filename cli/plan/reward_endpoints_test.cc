// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/listening_sockets.h"
#include "cli/plan/reward_plan.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

v1::RewardConfig Wanting(const std::vector<std::string>& endpoints,
                         const std::vector<std::string>& rewards) {
  v1::RewardConfig config;
  for (const std::string& endpoint : endpoints) config.add_endpoints(endpoint);
  for (const std::string& reward : rewards) config.add_terms()->set_name(reward);
  return config;
}

std::vector<config::Problem> ProblemsOf(const v1::RewardConfig& config, absl::Duration timeout) {
  return CheckEndpoints(config, timeout);
}

// Promise: A bad config does not start.
TEST(RewardEndpointsTest, AServerThatIsMissingOrSilentIsNamed) {
  const reward::FakeRewardServer there({reward::Described("redness")}, 4, nullptr);
  const ListeningSockets silent = Listen("127.0.0.1:0").value();
  const std::string unheard = absl::StrCat("127.0.0.1:", silent.port);
  EXPECT_TRUE(ProblemsOf(Wanting({there.endpoint()}, {"redness"}), absl::Seconds(20)).empty());
  const auto problems =
      ProblemsOf(Wanting({"127.0.0.1:1", unheard}, {"redness"}), absl::Milliseconds(300));
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].key, "reward.endpoints");
  EXPECT_EQ(problems[0].severity, config::Severity::kWarning);
  EXPECT_THAT(problems[0].message, HasSubstr("no reward server answers at 127.0.0.1:1"));
  EXPECT_THAT(problems[1].message, HasSubstr(unheard));
}

TEST(RewardEndpointsTest, ARewardThatNoServerHasIsNamedWithThoseThatTheyHave) {
  const reward::FakeRewardServer there({reward::Described("redness")}, 4, nullptr);
  v1::RewardConfig config = Wanting({there.endpoint()}, {"redness", "pickscore", "clip"});
  config.add_scorers()->set_name("clip");  // The run's own.
  const auto problems = ProblemsOf(config, absl::Seconds(20));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].severity, config::Severity::kError) << "the run would end by it";
  EXPECT_EQ(problems[0].key, "reward.terms");
  EXPECT_THAT(problems[0].message,
              HasSubstr("has the reward pickscore; they have clip, redness; serve it"));
  config = Wanting({there.endpoint()}, {"redness"});
  config.add_observed("rednes");
  const auto mistyped = ProblemsOf(config, absl::Seconds(20));
  ASSERT_EQ(mistyped.size(), 1u);
  EXPECT_EQ(mistyped[0].key, "reward.observed");
  EXPECT_THAT(mistyped[0].message, HasSubstr("did you mean `redness`?"));
}

}  // namespace
}  // namespace oxbow::cli
