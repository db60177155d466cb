// SPDX-License-Identifier: Apache-2.0
#include "cli/run_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/help_page.h"

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

}  // namespace
}  // namespace oxbow::cli
