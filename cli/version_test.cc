// SPDX-License-Identifier: Apache-2.0
#include "cli/version.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace oxbow::cli {
namespace {

TEST(VersionTest, SaysTheSameForPeopleAndPrograms) {
  const BuildFacts facts{"0.3.0", "abc1234", "2.13.0", "1.51.1", "3.21.12", "Release"};
  EXPECT_EQ(VersionText(facts, false),
            "oxbow 0.3.0 (git abc1234, LibTorch 2.13.0, gRPC 1.51.1, protobuf 3.21.12, Release)");
  const auto json = nlohmann::json::parse(VersionText(facts, true));
  EXPECT_EQ(json["version"], "0.3.0");
  EXPECT_EQ(json["git"], "abc1234");
  EXPECT_EQ(json["protobuf"], "3.21.12");
}

TEST(VersionTest, ThisBuildKnowsItself) {
  const auto json = nlohmann::json::parse(VersionText(ThisBuild(), true));
  for (const auto& [key, value] : json.items()) EXPECT_NE(value, "") << key;
}

}  // namespace
}  // namespace oxbow::cli
