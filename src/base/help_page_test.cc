// SPDX-License-Identifier: Apache-2.0
#include "base/help_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace oxbow {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HelpPageTest : public ::testing::Test {
 protected:
  HelpPageTest() { UseHelpPage(app_); }

  CLI::App app_{"Does a thing.", "thing"};
  int count_ = 1;
  std::string text_;
};

TEST_F(HelpPageTest, AValueIsExplainedInWordsBehindItsOption) {
  app_.add_option("--count", count_, "images per prompt")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app_.add_option("--form", text_)->check(CLI::IsMember({"text", "json"}))->required();
  app_.add_option("--key", text_, "a file")->envname("THING_KEY");
  EXPECT_THAT(app_.help(),
              AllOf(HasSubstr("  --count N                 images per prompt (1 to 4096; default "
                              "1)\n"),
                    HasSubstr("  --form {text,json}        (required)\n"),
                    HasSubstr("  --key TEXT                a file (or THING_KEY)\n")));
}

TEST_F(HelpPageTest, AGroupOfOptionsSaysHowManyOfThemAreNeeded) {
  CLI::App* const command = app_.add_subcommand("draw", "Draws.");
  CLI::Option_group* const group = command->add_option_group("source");
  group->add_option("--model", text_, "a directory");
  group->require_option(1);
  EXPECT_THAT(command->help(), AllOf(HasSubstr("\nOne of these is required:\n  --model TEXT  "),
                                     Not(HasSubstr("Option Group")), Not(HasSubstr("Exactly"))));
}

TEST_F(HelpPageTest, LinesHaveAtMostAHundredColumns) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word ";
  app_.add_option("--a-name-that-is-too-long-for-its-column", text_, text);
  app_.add_subcommand("draw", text);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(app_.help(), '\n'))) {
    EXPECT_LE(line.size(), 100) << line;
  }
}

}  // namespace
}  // namespace oxbow
