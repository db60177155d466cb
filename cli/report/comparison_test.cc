// SPDX-License-Identifier: Apache-2.0
#include "cli/report/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "config/run_config.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ComparisonTest : public ::testing::Test {
 protected:
  std::filesystem::path AddRun(const std::string& name, const std::vector<std::string>& set) {
    const std::filesystem::path run_dir = runs_.path() / name;
    std::filesystem::create_directories(run_dir);
    std::vector<std::string> all = {"run.name=" + name};
    all.insert(all.end(), set.begin(), set.end());
    const auto resolved = config::LoadRunConfig("", all, {});
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_TRUE(config::WriteResolved(*resolved, run_dir / "config.resolved.yaml").ok());
    EXPECT_TRUE(WriteFileAtomically(run_dir / "metrics.jsonl", io::MadeUpMetrics(30)).ok());
    return run_dir;
  }

  testing::ScopedDirectory runs_;
};

TEST_F(ComparisonTest, OnlyWhatDiffersIsListedAndEveryRunIsInEveryChart) {
  const auto first = AddRun("a", {});
  const auto second = AddRun("<b>", {"optimizer.learning_rate=0.125", "model.lora.targets=[x]"});
  io::AddMadeUpSheet(second, 30, "the end", 0.5);
  const auto differences = DifferencesOf({first, second});
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].key, "model.lora.targets");
  EXPECT_EQ(differences[1].key, "optimizer.learning_rate");
  EXPECT_THAT(differences[1].values, ::testing::ElementsAre("3e-04", "0.125"));
  const auto page = ComparisonPage({first, second}, runs_.path() / "comparison.html");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr("data-name=\"a\""));
  EXPECT_THAT(*page, HasSubstr("data-name=\"&lt;b&gt;\""));
  EXPECT_THAT(*page, HasSubstr("&lt;b&gt;: step <span class=\"at\">30</span>"));
  EXPECT_THAT(*page, Not(HasSubstr("<b>: step")));
  EXPECT_THAT(*page, HasSubstr("<td>0.125</td>"));
}

TEST_F(ComparisonTest, TheTableOfATerminalIsAlignedAndNamesTheRuns) {
  const auto first = AddRun("first", {});
  const auto second = AddRun("b", {"optimizer.learning_rate=0.125", "model.lora.targets=[x]"});
  const std::string text = DifferencesText({first, second});
  std::istringstream lines(text);
  std::string head, targets, rate;
  std::getline(lines, head);
  std::getline(lines, targets);
  std::getline(lines, rate);
  EXPECT_THAT(head, ::testing::MatchesRegex("setting +first +b"));
  EXPECT_EQ(rate.find("3e-04"), head.find("first"));
  EXPECT_EQ(rate.find("0.125"), head.rfind("b"));
  EXPECT_EQ(targets.find("[x]"), head.rfind("b"));
  EXPECT_EQ(DifferencesText({first, first}), "the settings are the same\n");
}

TEST_F(ComparisonTest, RunsThatDifferInTheirSeedAloneAreOneLineWithABand) {
  const auto first = AddRun("a", {}), second = AddRun("b", {"run.seed=1"});
  const auto other = AddRun("c", {"run.seed=1", "optimizer.learning_rate=0.125"});
  ASSERT_TRUE(WriteFileAtomically(second / "metrics.jsonl", io::MadeUpMetrics(20)).ok());
  const auto page = ComparisonPage({first, second, other}, "comparison.html");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr("data-name=\"a, mean of 2 runs\""));
  EXPECT_THAT(*page, Not(HasSubstr("data-name=\"b\"")));
  EXPECT_THAT(*page, HasSubstr("data-name=\"c\""));
  EXPECT_THAT(*page, HasSubstr("<polygon class=\"band\""));
  EXPECT_THAT(*page, HasSubstr("differ in their seed alone"));
}

// Promise: Pictures of any size are on the pages.
TEST_F(ComparisonTest, LastPicturesOfARealSizeAreShownForEachRunAndLinkToTheirFiles) {
  const auto first = AddRun("a", {}), second = AddRun("b", {}), third = AddRun("c", {});
  io::AddPhotos(first, 20, 64, 512);
  io::AddPhotos(second, 30, 64, 256);
  io::AddPhotos(third, 30, 8, 160);
  ASSERT_TRUE(WriteFileAtomically(third / "samples/step_000030/007.png", "no picture").ok());
  const auto page = ComparisonPage({first, second, third}, runs_.path() / "out" / "page.html");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr("a: step <span class=\"at\">20</span>"));
  EXPECT_THAT(*page, HasSubstr("href=\"../a/samples/step_000020/063.jpg\""));
  EXPECT_THAT(*page, HasSubstr("href=\"../b/samples/step_000030/063.png\""));
  for (const char* const sheet :
       {".s0{background-image:url(data:image/jpeg", ".s1{background-image:url(data:image/jpeg",
        ".s2{background-image:url(data:image/"}) {
    EXPECT_THAT(*page, HasSubstr(sheet));
  }
  EXPECT_THAT(*page, HasSubstr("cannot be shown: c, step 30: 007.png: "));
  EXPECT_LT(page->size(), 6'000'000u);
}

// A reward that knows no right picture beside one that does.
TEST_F(ComparisonTest, MarksOfARunAreThoseOfItsOwnReward) {
  const auto digits = AddRun("digits", {}), dark = AddRun("dark", {});
  io::AddMadeUpSheet(digits, 20, "digits", 0.5);
  io::AddMadeUpSheet(dark, 20, "dark", 0);
  const auto page = ComparisonPage({digits, dark}, runs_.path() / "page.html");
  ASSERT_TRUE(page.ok()) << page.status();
  const size_t second = page->find("data-sheet=\"1\"");
  ASSERT_NE(second, std::string::npos);
  EXPECT_THAT(page->substr(0, second), HasSubstr("\"cell no\""));
  EXPECT_THAT(page->substr(second), ::testing::Not(HasSubstr("\"cell no\"")));
}

TEST_F(ComparisonTest, MeansOfDifferentRewardsAreNotCompared) {
  const std::string half = "reward.terms=[{name: digits_ocr, weight: 0.5}]";
  const auto first = AddRun("a", {"reward.terms=[{name: digits_ocr, weight: 1}]"});
  const auto second = AddRun("b", {half}), third = AddRun("c", {half});
  EXPECT_EQ(RewardsApart({second, third}), "");
  EXPECT_EQ(RewardsApart({first, second}),
            "these runs are trained on different rewards, whose means are not compared (a: "
            "digits_ocr; b: 0.5 digits_ocr)");
  const auto apart = ComparisonPage({first, second}, runs_.path() / "page.html");
  EXPECT_THAT(*apart, HasSubstr("whose means are not compared"));
  EXPECT_THAT(*apart, Not(HasSubstr("Training reward")));
  EXPECT_THAT(*apart, HasSubstr("Gradient norm"));
  EXPECT_THAT(*ComparisonPage({second, third}, runs_.path() / "page.html"),
              HasSubstr("Training reward"));
}

TEST_F(ComparisonTest, ARunThatIsNotThereIsNamed) {
  const auto first = AddRun("a", {});
  const auto page = ComparisonPage({first, runs_.path() / "none"}, "comparison.html");
  EXPECT_EQ(page.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(page.status().message()), HasSubstr("none; runs beside it: a"));
}

}  // namespace
}  // namespace oxbow::cli
