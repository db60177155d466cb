// SPDX-License-Identifier: Apache-2.0
// A wrong command line is answered with what was probably meant.
#include "cli/usage_hint.h"

#include <gtest/gtest.h>

namespace oxbow::cli {
namespace {

const KnownWords kTrain = {.commands = {"train", "eval", "status"},
                           .options = {"set", "name", "resume", "help"},
                           .takes_settings = true};
const KnownWords kEval = {.commands = {"train", "eval", "status"},
                          .options = {"set", "steps", "run", "help"},
                          .takes_settings = false};

TEST(UsageHintTest, NamesTheNearestCommand) {
  EXPECT_EQ(UsageHint({"trian", "configs/digits.yaml"}, kTrain), "did you mean `oxbow train`?\n");
  EXPECT_EQ(UsageHint({"paint"}, kTrain), "");
  EXPECT_EQ(UsageHint({"pretrain", "--task", "digits"}, kTrain),
            "`oxbow pretrain` is examples/pretrain/train.py of the sources\n");
}

TEST(UsageHintTest, NamesTheNearestCommandOfACommand) {
  const KnownWords bench = {.depth = 1, .commands = {"learning", "compare"}, .options = {"help"}};
  EXPECT_EQ(UsageHint({"bench", "learnin"}, bench), "did you mean `oxbow bench learning`?\n");
  EXPECT_EQ(UsageHint({"bench", "learning"}, bench), "");
  EXPECT_EQ(UsageHint({"bench"}, bench), "");
  const KnownWords watch = {.depth = 1, .options = {"port", "help"}};
  EXPECT_EQ(UsageHint({"watch", "runs/a"}, watch), "") << "it has no commands";
}

TEST(UsageHintTest, NamesTheSettingThatAnUnknownOptionIsNamedAfter) {
  const std::string line =
      "settings of a run are given with --set: --set optimizer.learning_rate=VALUE\n";
  EXPECT_EQ(UsageHint({"train", "configs/digits.yaml", "--lr", "3"}, kTrain), line);
  EXPECT_EQ(UsageHint({"train", "configs/digits.yaml", "--learning_rate=3"}, kTrain), line);
  // The option before it is right, and a setting has its name, too.
  EXPECT_EQ(UsageHint({"train", "a.yaml", "--name", "b", "--lr", "3"}, kTrain), line);
  // Several settings have the name: none is picked.
  const std::string steps = UsageHint({"train", "a.yaml", "--steps", "3"}, kTrain);
  EXPECT_NE(steps.find("--set run.steps=VALUE"), std::string::npos) << steps;
  EXPECT_NE(steps.find("--set sampling.steps=VALUE"), std::string::npos) << steps;
  EXPECT_EQ(UsageHint({"train", "--zzzzqqqq"}, kTrain),
            "its options are --set, --name, --resume, --help\n");
}

TEST(UsageHintTest, ACommandWithoutSettingsHasItsOwnOptionsAlone) {
  EXPECT_EQ(UsageHint({"eval", "--step", "3"}, kEval), "did you mean --steps?\n");
  EXPECT_EQ(UsageHint({"eval", "--lr", "3"}, kEval),
            "its options are --set, --steps, --run, --help\n");
  EXPECT_EQ(UsageHint({"train", "a.yaml", "--resum"}, kTrain), "did you mean --resume?\n");
  // Each word is right; something else is wrong.
  EXPECT_EQ(UsageHint({"eval", "--run", "a", "--steps", "x"}, kEval), "");
}

TEST(UsageHintTest, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(AskedFor({"version", "--json"}), (std::vector<std::string>{"--version", "--json"}));
  EXPECT_EQ(AskedFor({"help"}), std::vector<std::string>{"--help"});
  EXPECT_EQ(AskedFor({"help", "train"}), (std::vector<std::string>{"train", "--help"}));
  EXPECT_EQ(AskedFor({"train", "help"}), (std::vector<std::string>{"train", "help"}));
}

}  // namespace
}  // namespace oxbow::cli
