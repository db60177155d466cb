// SPDX-License-Identifier: Apache-2.0
#include "cli/run_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/help_page.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunOptionTest, ARunIsGivenAsAWordOrWithItsFlagAndTheHelpSaysBoth) {
  for (const char* const words : {"runs/digits --to 5", "--run runs/digits --to 5"}) {
    CLI::App app("Does a thing.", "thing");
    UseHelpPage(app);
    std::string run, to;
    AddRunDirectory(app, run)->required();
    app.add_option("--to", to);
    app.parse(words);
    EXPECT_EQ(run, "runs/digits") << words;
    EXPECT_THAT(app.help(), AllOf(HasSubstr("\n  RUN_DIR  "), HasSubstr("\n  --run TEXT  ")));
    // One of the two is.
    EXPECT_THAT(app.help(), AllOf(HasSubstr("directory of the run (RUN_DIR or --run is required)"),
                                  Not(HasSubstr("(required)"))));
  }
}

TEST(RunOptionTest, ANameAloneIsThatOfARunInRunsWhereNoDirectoryHereHasIt) {
  const testing::ScopedDirectory scratch;
  const auto former = std::filesystem::current_path();
  std::filesystem::create_directories(scratch.path() / "runs" / "digits");
  std::filesystem::create_directories(scratch.path() / "runs" / "both");
  std::filesystem::create_directories(scratch.path() / "both");
  std::filesystem::current_path(scratch.path());
  CLI::App app;
  std::string run;
  AddRunDirectory(app, run);
  app.parse("digits");
  const std::string both = RunNamed("both"), none = RunNamed("none"), whole = RunNamed("/digits");
  std::filesystem::current_path(former);
  EXPECT_EQ(run, "runs/digits");
  EXPECT_EQ(both, "both");
  EXPECT_EQ(none, "none");
  EXPECT_EQ(whole, "/digits");
}

}  // namespace
}  // namespace oxbow::cli
