// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/run_checks.h"

#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

MachineNeeds NeedsWith(std::vector<std::string> set) {
  MachineNeeds needs;
  set.push_back("services.reward_servers=3");
  const auto resolved = config::LoadRunConfig(OXBOW_SOURCE_DIR "/configs/digits.yaml", set, {});
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  CheckConfig(*resolved, needs);
  return needs;
}

TEST(RunChecksTest, OwnServersAreCountedWhereEndpointsHaveOtherRewards) {
  const std::string elsewhere = "reward.endpoints=[scores:7070]";
  const uint32_t without = NeedsWith({elsewhere}).processes;
  EXPECT_EQ(NeedsWith({}).processes, without + 3);
  EXPECT_EQ(NeedsWith({elsewhere, "reward.scorers=[{name: digits_strict}]"}).processes,
            without + 3);
}

}  // namespace
}  // namespace oxbow::cli
