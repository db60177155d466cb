// SPDX-License-Identifier: Apache-2.0
// A wrong command line is answered with what was probably meant.
#include "cli/usage_hint.h"

#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

const std::vector<std::string> kCommands = {"train", "eval", "status"};

TEST(UsageHintTest, NamesTheNearestCommand) {
  EXPECT_EQ(UsageHint({"trian", "configs/digits.yaml"}, kCommands),
            "did you mean `oxbow train`?\n");
  EXPECT_EQ(UsageHint({"paint"}, kCommands), "");
}

TEST(UsageHintTest, NamesTheSettingThatAnOptionIsNamedAfter) {
  const std::string line =
      "settings of a run are given with --set: --set optimizer.learning_rate=VALUE\n";
  EXPECT_EQ(UsageHint({"train", "configs/digits.yaml", "--lr", "3"}, kCommands), line);
  EXPECT_EQ(UsageHint({"train", "configs/digits.yaml", "--learning_rate=3"}, kCommands), line);
  EXPECT_EQ(UsageHint({"train", "--zzzzqqqq"}, kCommands), "");
}

TEST(UsageHintTest, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(AskedFor({"version", "--json"}), (std::vector<std::string>{"--version", "--json"}));
  EXPECT_EQ(AskedFor({"help"}), std::vector<std::string>{"--help"});
  EXPECT_EQ(AskedFor({"help", "train"}), (std::vector<std::string>{"train", "--help"}));
  EXPECT_EQ(AskedFor({"train", "help"}), (std::vector<std::string>{"train", "help"}));
}

}  // namespace
}  // namespace oxbow::cli
