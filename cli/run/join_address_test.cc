// SPDX-License-Identifier: Apache-2.0
#include "cli/run/fleet.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

TEST(JoinAddressTest, IsAHostAndAPort) {
  const auto name = ParseJoinAddress("trainer.example:7070");
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(name->host, "trainer.example");
  EXPECT_EQ(name->port, 7070);
  EXPECT_EQ(ParseJoinAddress("[fd00::7]:7070")->host, "[fd00::7]");
  for (const char* wrong : {"", "7070", ":7070", "box:", "box:0", "box:65001", "box:70a", "box"}) {
    const auto refused = ParseJoinAddress(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("HOST:PORT")) << wrong;
  }
}

TEST(JoinAddressTest, IsNoAddressOfEverywhere) {
  for (const char* wrong : {"0.0.0.0:7070", "[::]:7070", "*:7070"}) {
    const auto refused = ParseJoinAddress(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("own address"));
  }
}

TEST(JoinAddressTest, GivesEachProcessAPortOfItsOwn) {
  const JoinAddress address{.host = "box", .port = 7070};
  EXPECT_EQ(PortOf(address, FleetRole::kLearner, 0), 7070);
  EXPECT_EQ(PortOf(address, FleetRole::kBuffer, 0), 7071);
  EXPECT_EQ(PortOf(address, FleetRole::kBuffer, 1), 0) << "a further shard: any";
  EXPECT_EQ(PortOf(address, FleetRole::kReward, 0), 7072);
  EXPECT_EQ(PortOf(address, FleetRole::kReward, 3), 7075);
  EXPECT_EQ(PortOf(address, FleetRole::kWorker, 2), 0) << "any";
  EXPECT_EQ(PortOf({}, FleetRole::kLearner, 0), 0) << "any";
}

TEST(JoinAddressTest, ANameThatMeansThisMachineAloneIsWarnedOf) {
  const auto alone = [](const std::string&) -> std::vector<std::string> { return {"127.0.1.1"}; };
  const auto known = [](const std::string&) -> std::vector<std::string> {
    return {"192.0.2.7", "127.0.1.1"};
  };
  const auto unknown = [](const std::string&) -> std::vector<std::string> { return {}; };
  EXPECT_THAT(LoopbackWarning("vm", alone), HasSubstr("vm is 127.0.1.1 on this machine"));
  EXPECT_EQ(LoopbackWarning("vm", known), "");
  EXPECT_EQ(LoopbackWarning("vm", unknown), "");
  EXPECT_EQ(LoopbackWarning("localhost", alone), "") << "meant so";
  EXPECT_THAT(AddressesOf("127.0.0.1"), ::testing::ElementsAre("127.0.0.1"));
}

}  // namespace
}  // namespace oxbow::cli
