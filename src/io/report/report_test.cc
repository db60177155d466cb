// SPDX-License-Identifier: Apache-2.0
#include "io/report/report.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/evaluation_file.h"
#include "io/image.h"
#include "io/metrics_file.h"
#include "io/report/sheets.h"
#include "tests/testing/made_up_run.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    std::filesystem::remove_all(run_dir_);
    std::filesystem::create_directories(run_dir_);
  }

  std::string Render(const std::string& metrics, const RunFacts& facts = {}) {
    EXPECT_TRUE(WriteFileAtomically(run_dir_ / "metrics.jsonl", metrics).ok());
    const absl::Status status = WriteReport(run_dir_, facts);
    EXPECT_TRUE(status.ok()) << status;
    return *ReadFile(run_dir_ / "report.html");
  }

  void AddSheet(int step, const std::string& caption, double right) {
    AddMadeUpSheet(run_dir_, step, caption, right);
  }

  const std::filesystem::path run_dir_ =
      std::filesystem::path(::testing::TempDir()) / "report_test" /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_F(ReportTest, ShowsVerdictPicturesAndCurvesWithoutTheNetwork) {
  AddSheet(0, "64 prompts, 8 right", 0.1);
  AddSheet(10, "in between </script>", 0.5);
  AddSheet(100, "64 prompts, 60 right", 0.9);
  ASSERT_TRUE(WriteFileAtomically(run_dir_ / "config.resolved.yaml", "run: {name: <b>}\n").ok());
  const std::string page = Render(MadeUpMetrics());
  EXPECT_THAT(page, HasSubstr("<em>0.52 &rarr;</em> 0.962"));
  EXPECT_THAT(page, HasSubstr("Before: step <span class=\"at\">0</span>"));
  EXPECT_THAT(page, HasSubstr("After: step <span class=\"at\">100</span>"));
  EXPECT_THAT(page, HasSubstr("64 prompts, 60 right"));
  EXPECT_THAT(page, HasSubstr("in between \\u003c/script>"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;"));
  EXPECT_EQ(CountOf(page, "<em class=\""), 5u) << "the verdict's lines";
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("Not measured")));
  EXPECT_THAT(page, Not(HasSubstr("data-reload=\"")));
}

TEST_F(ReportTest, PromptsOfEachDifficultyHaveALine) {
  const std::string lines =
      FormatMetricsLine(
          0, 0,
          {{"eval/reward_mean", 0.3}, {"eval/by_easy_mean", 0.6}, {"eval/by_hard_mean", 0.0}}) +
      FormatMetricsLine(
          5, 1,
          {{"eval/reward_mean", 0.5}, {"eval/by_easy_mean", 0.9}, {"eval/by_hard_mean", 0.1}});
  const std::string page = Render(lines);
  EXPECT_THAT(page, HasSubstr("Held-out reward by difficulty"));
  EXPECT_THAT(page, HasSubstr("easy"));
  EXPECT_THAT(page, HasSubstr("hard"));
  EXPECT_THAT(Render(FormatMetricsLine(0, 0, {{"eval/reward_mean", 0.3}})),
              Not(HasSubstr("by difficulty")));
}

TEST_F(ReportTest, EverySheetIsInThePageOnce) {
  for (int step = 0; step <= 100; step += 10) AddSheet(step, "caption", 0.005 * step);
  const std::string page = Render(MadeUpMetrics());
  EXPECT_EQ(CountOf(page, "data:image/png"), 11u);
  EXPECT_EQ(CountOf(page, "class=\"strip\""), 1u);
  EXPECT_EQ(CountOf(page, "<button type=\"button\" data-sheet"), 11u);
  EXPECT_EQ(CountOf(page, "class=\"view\""), 2u);
}

// The made-up sheet's pictures are 80 x 32 in frames of 3, with a label above.
TEST_F(ReportTest, APictureIsFoundOnItsSheetWithItsFrameAndWithoutItsLabel) {
  AddSheet(0, "", 0.5);
  const Sheet sheet = SheetsOf(run_dir_).at(0);
  ASSERT_EQ(sheet.shown(), 64u);
  const Image8 pixels = *DecodePng(*ReadFile(sheet.file));
  for (const size_t i : {0, 7, 8, 63}) {
    const Box box = sheet.BoxOf(i);
    EXPECT_EQ(box.width, 86);
    EXPECT_EQ(box.height, 38);
    const auto red = [&](double x, double y) {
      return pixels.pixels[3 * (static_cast<size_t>(y) * pixels.width + static_cast<size_t>(x))];
    };
    const uint8_t frame = i % 32 < 16 ? kRightColour.red : kWrongColour.red;
    EXPECT_EQ(red(box.x, box.y), frame) << i;
    EXPECT_EQ(red(box.x + 85, box.y + 37), frame) << i;
    EXPECT_EQ(red(box.x + 3, box.y + 3), 40 + 3 * i) << i;
  }
}

TEST_F(ReportTest, PromptsAreSortedByTheirRewardAtTheEnd) {
  AddSheet(0, "", 0.1);
  AddSheet(100, "", 0.5);
  const std::string page = Render(MadeUpMetrics());
  const size_t lowest = page.find("Lowest reward at the end"), highest = page.find("Highest");
  const std::string low = page.substr(lowest, highest - lowest);
  EXPECT_THAT(low, HasSubstr("<td>digits 116</td>"));
  EXPECT_THAT(low, HasSubstr("0.25 &rarr; <b>0.25</b>"));
  EXPECT_THAT(low, Not(HasSubstr("<td>digits 100</td>")));
  EXPECT_THAT(page.substr(highest), HasSubstr("0.25 &rarr; <b>1.00</b>"));
}

TEST_F(ReportTest, WithoutARightPictureTheNumberIsShownAndNoFrameIsExplained) {
  AddSheet(0, "", 0);
  AddSheet(100, "", 0);
  const std::string page = Render(MadeUpMetrics());
  EXPECT_THAT(page, Not(HasSubstr("green frame")));
  EXPECT_THAT(page, HasSubstr("<b>0.25</b></div>"));
}

TEST_F(ReportTest, APanelWithoutNumbersIsLeftOutAndSaidOnce) {
  std::string metrics = "{\"step\":0,\"eval/reward_mean\":4.5}\n";
  metrics += "{\"step\":1,\"train/reward_mean\":4.4,\"rollout/staleness_mean\":0}\n";
  const std::string page = Render(metrics, {.left_out = {{"replay", "replay.fraction is 0"}}});
  EXPECT_THAT(page, HasSubstr("Held-out reward"));
  EXPECT_THAT(page, Not(HasSubstr("Clip fraction")));
  EXPECT_THAT(page, Not(HasSubstr("Age of fresh samples"))) << "0 at every step";
  EXPECT_THAT(page, Not(HasSubstr("is full"))) << "the reward has no full value";
  EXPECT_THAT(page, HasSubstr("Not part of this run: replay (replay.fraction is 0)."));
}

TEST_F(ReportTest, AThousandStepsAndAHundredLargeSheetsStaySmall) {
  std::string metrics;
  for (int step = 0; step <= 1000; ++step) {
    std::map<std::string, double> line = {{"train/reward_mean", std::sin(step)},
                                          {"train/reward_std", 0.3},
                                          {"train/grad_norm", 1 + std::cos(step)},
                                          {"time/update_s", 1}};
    if (step % 10 == 0) line["eval/reward_mean"] = step * 1e-3;
    metrics += FormatMetricsLine(step, step, line);
  }
  std::mt19937 random(7);  // Noise hardly compresses.
  Image8 image{300, 150, 3, std::vector<uint8_t>(300 * 150 * 3)};
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(random());
  const std::string png = EncodePng(image);
  ASSERT_GT(png.size(), kSmallSheetBytes);
  for (int step = 0; step <= 1200; step += 10) {  // 121 sheets.
    const auto directory = run_dir_ / "samples" / absl::StrFormat("step_%06d", step);
    std::filesystem::create_directories(directory);
    ASSERT_TRUE(WriteFileAtomically(directory / "eval.png", png).ok());
  }
  const std::string page = Render(metrics);
  EXPECT_EQ(CountOf(page, "data:image/"), 100u);
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_EQ(Render(metrics), page) << "from the kept small sheets";
}

TEST_F(ReportTest, WorksForARunThatHasOnlyBegun) {
  EXPECT_THAT(Render(""), HasSubstr("No step has been logged yet."));
  const std::string one =
      Render("{\"step\":1,\"train/reward_mean\":0.5}\n{\"step\":2,\"tr", {.live = true});
  EXPECT_THAT(one, HasSubstr("<circle"));
  EXPECT_THAT(one, HasSubstr("No pictures yet."));
  EXPECT_THAT(one, HasSubstr("data-reload=\"10\""));
  EXPECT_THAT(Render("{\"step\":1,\"train/reward_mean\":0.5}\n"),
              HasSubstr("No pictures: the run made no evaluation."));
}

TEST_F(ReportTest, ADirectoryThatIsNoRunIsNotFound) {
  const absl::Status status = WriteReport(run_dir_ / "missing");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

}  // namespace
}  // namespace oxbow::io
