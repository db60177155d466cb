// SPDX-License-Identifier: Apache-2.0
// `oxbow` and the program that it becomes for commands with models.
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Promise: `oxbow` starts fast. It loads LibTorch for commands with models or rewards alone: then
// it becomes oxbow_models, beside it, with the same words. Help on all commands is the same text.
TEST(TwoProgramsTest, OnlyTheProgramOfModelsLinksLibTorch) {
  EXPECT_THAT(RunToEnd({"/usr/bin/ldd", BinaryPath("oxbow")}).output,
              AllOf(HasSubstr("libgrpc"), Not(HasSubstr("torch"))));
  EXPECT_THAT(RunToEnd({"/usr/bin/ldd", BinaryPath("oxbow_models")}).output, HasSubstr("libtorch"));
}

// Promise: `oxbow` starts fast.
TEST(TwoProgramsTest, BothProgramsHaveOneHelp) {
  const std::string help = RunOxbow({"--help"}).output;
  EXPECT_EQ(RunToEnd({BinaryPath("oxbow_models"), "--help"}).output, help);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"help", "train"},
                                                {"replay", "--help"},
                                                {"replay", "show", "--help"}}) {
    std::vector<std::string> models = {BinaryPath("oxbow_models")};
    models.insert(models.end(), words.begin(), words.end());
    EXPECT_EQ(RunOxbow(words).output, RunToEnd(models).output) << words[1];
  }
  int commands = 0;
  const std::regex row("\n  ([a-z-]+)  +[A-Z]");
  for (std::sregex_iterator at(help.begin(), help.end(), row), end; at != end; ++at, ++commands) {
    const Outcome outcome = RunOxbow({(*at)[1], "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << (*at)[1];
    EXPECT_THAT(outcome.output, HasSubstr("\nUsage: oxbow " + (*at)[1].str() + " "));
  }
  EXPECT_GT(commands, 25) << "the table was not read";
}

// Promise: `oxbow` starts fast.
TEST(TwoProgramsTest, TheProgramOfModelsIsFoundBesideTheOneThatALinkLeadsTo) {
  const ScopedDirectory scratch;
  const std::string link = scratch.path() / "link", alone = scratch.path() / "oxbow";
  std::filesystem::create_symlink(BinaryPath("oxbow"), link);
  EXPECT_THAT(
      RunToEnd({link, "score", "x.png", "--reward", "pickscore"}).message,
      HasSubstr("oxbow score: --model PATH: reward pickscore needs the key `model`; the id "));
  std::filesystem::copy_file(BinaryPath("oxbow"), alone);
  EXPECT_EQ(RunToEnd({alone, "--version"}).exit_code, 0);
  const Outcome outcome = RunToEnd({alone, "validate", "x.yaml"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.message, HasSubstr("No such file or directory: " + alone + "_models"));
}

}  // namespace
}  // namespace oxbow::testing
