// SPDX-License-Identifier: Apache-2.0
#include "io/report/report.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/evaluation_file.h"
#include "io/image.h"
#include "io/metrics_file.h"
#include "io/report/html.h"
#include "io/report/sheets.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/photo_like.h"

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

// Promise: Evaluations of different settings are not compared.
TEST_F(ReportTest, CardsAndVerdictSayTheSame) {
  const std::string page = Render(MadeUpMetrics(), {.full_reward = 1});
  EXPECT_THAT(page, HasSubstr("<em>0.52 &rarr;</em> 0.962"));
  EXPECT_THAT(page, HasSubstr("held-out reward 0.52 -&gt; 0.962 of 1.00"));
  EXPECT_THAT(page, HasSubstr("last <b>0.962</b>"));
}

// Promise: Evaluations of different settings are not compared.
TEST_F(ReportTest, AfterAChangeOfTheHeldOutPromptsNothingIsComparedAcrossIt) {
  AddSheet(0, "", 0.5);
  AddPhotos(run_dir_, 40, 8, 160);
  AddPhotos(run_dir_, 100, 8, 160);
  const std::string page =
      Render(MadeUpMetrics(), {.changes = {{30, "prompts.eval: a -> b"}}, .same_since = 30});
  EXPECT_THAT(page, HasSubstr("<em>0.879 &rarr;</em> 0.962"));
  EXPECT_THAT(page, HasSubstr("held-out reward, since step 30"));
  EXPECT_THAT(page, HasSubstr("held-out reward 0.879 -&gt; 0.962"));
  EXPECT_THAT(page, Not(HasSubstr("Before: ")));
  EXPECT_THAT(page, HasSubstr("<h2>First and last</h2>"));
  EXPECT_THAT(page, HasSubstr("First: step <span class=\"at\">40</span>"));
  EXPECT_THAT(page, HasSubstr("Last: step <span class=\"at\">100</span>"));
}

// A run at a real size showed stills, and nothing said that they were videos.
// Promise: A video is a video everywhere.
TEST_F(ReportTest, VideosPlayOrSayThatTheyAreStills) {
  AddVideos(run_dir_, 0, 2, 208, 120, 17);
  AddVideos(run_dir_, 100, 2, 208, 120, 17);
  std::string page = Render(MadeUpMetrics());
  EXPECT_THAT(page, HasSubstr("These are videos"));
  EXPECT_THAT(page, HasSubstr("\"lengths\":[\"17 frames\",\"17 frames\"]"));
  EXPECT_THAT(page, HasSubstr("\"films\":[[\"000.film.jpg\",17,1.0625],"));
  EXPECT_EQ(CountOf(page, " clip\" href="), 4u + 4u)
      << "in the grids, and in the tables of prompts";
  EXPECT_THAT(page, Not(HasSubstr("cannot be shown")));
  // As a version without films left it.
  const auto file = run_dir_ / "samples/step_000000" / kEvaluationFile;
  std::vector<EvaluatedPicture> pictures = *ReadEvaluation(file);
  for (EvaluatedPicture& picture : pictures) picture.film.clear();
  ASSERT_TRUE(WriteFileAtomically(file, FormatEvaluation(pictures)).ok());
  std::filesystem::remove(run_dir_ / "samples/step_000100/001.film.jpg");
  page = Render(MadeUpMetrics());
  EXPECT_THAT(page, HasSubstr("the first of 17 frames"));
  EXPECT_THAT(page, HasSubstr("cannot be shown: step 100: 001.film.jpg: is not there"));
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

TEST_F(ReportTest, RewardsHaveChartsOfTheirOwnWhereThereAreSeveral) {
  const auto page_of = [&](const std::map<std::string, double>& numbers) {
    return Render(FormatMetricsLine(1, 0, numbers) + FormatMetricsLine(2, 1, numbers));
  };
  const std::string two = page_of({{"eval/reward_mean", 1},
                                   {"eval/reward_a_mean", 2},
                                   {"eval/reward_b_mean", 3},
                                   {"train/reward_a_mean", 4},
                                   {"train/reward_group_std_mean", 5}});
  EXPECT_THAT(two, HasSubstr("Held-out reward"));
  EXPECT_THAT(two, HasSubstr("Each reward, held out"));
  EXPECT_THAT(two, Not(HasSubstr("Each reward, in training"))) << "a spread is no reward";
  EXPECT_THAT(page_of({{"eval/reward_mean", 1}, {"eval/reward_a_mean", 1}}),
              Not(HasSubstr("Each reward")));
}

TEST_F(ReportTest, EverySheetIsInThePageOnce) {
  for (int step = 0; step <= 100; step += 10) AddSheet(step, "caption", 0.005 * step);
  const std::string page = Render(MadeUpMetrics());
  EXPECT_EQ(CountOf(page, "data:image/png"), 11u);
  EXPECT_EQ(CountOf(page, "class=\"strip\""), 1u);
  EXPECT_EQ(CountOf(page, "<button type=\"button\" data-sheet"), 11u);
  EXPECT_EQ(CountOf(page, "class=\"view\""), 2u);
}

TEST_F(ReportTest, PromptsAreSortedByTheirRewardAtTheEnd) {
  AddSheet(0, "", 0.1);
  AddSheet(100, "", 0.5);
  const std::string page = Render(MadeUpMetrics());
  const size_t lowest = page.find("Lowest reward at the end"), highest = page.find("Highest");
  const std::string low = page.substr(lowest, highest - lowest);
  EXPECT_THAT(low, HasSubstr(">digits 116<"));
  EXPECT_THAT(low, HasSubstr("<th>reward, mean of 2 pictures</th>"));
  EXPECT_THAT(low, HasSubstr("0.25 &rarr; <b>0.25</b>"));
  EXPECT_THAT(low, Not(HasSubstr(">digits 100<")));
  EXPECT_THAT(page.substr(highest), HasSubstr("0.25 &rarr; <b>1.00</b>"));
}

TEST_F(ReportTest, APictureWithoutAScoreIsShownAndCountsInNoMean) {
  AddSheet(0, "", 0);
  const auto file = run_dir_ / "samples/step_000000" / kEvaluationFile;
  std::vector<EvaluatedPicture> pictures = *ReadEvaluation(file);
  for (const size_t i : {0, 1, 33}) {  // One of two of "digits 100", both of "digits 101".
    pictures[i].reward = std::nan("");
    pictures[i].right = std::nullopt;
    pictures[i].rewards.clear();
  }
  ASSERT_TRUE(WriteFileAtomically(file, FormatEvaluation(pictures)).ok());
  const std::string page = Render(MadeUpMetrics());
  EXPECT_EQ(CountOf(page, "<b>no score</b></div>"), 3u);
  const size_t lowest = page.find("Lowest reward at the end");
  const std::string low = page.substr(lowest, page.find("Highest") - lowest);
  EXPECT_LT(low.find(">digits 101<"), low.find(">digits 100<")) << "without any score: first";
  EXPECT_THAT(low, HasSubstr("<th>reward, mean of 0 to 2 pictures</th>"));
  EXPECT_THAT(low, HasSubstr("<b>no score</b></td>"));
  EXPECT_EQ(CountOf(low, "<b>0.25</b></td>"), 5u) << "the mean of the others";
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

TEST_F(ReportTest, PromptsAreCountedByTheLevelTheyCameFrom) {
  std::map<std::string, double> line = {{"prompts/seen", 7},
                                        {"prompts/moved_0_0", 4},
                                        {"prompts/moved_0_5", 2},
                                        {"prompts/moved_3_1", 1}};
  const std::string before = FormatMetricsLine(
      1, 1, {{"prompts/seen", 6}, {"prompts/moved_0_0", 5}, {"prompts/moved_2_2", 1}});
  const std::string page = Render(before + FormatMetricsLine(2, 2, line));
  EXPECT_THAT(page, HasSubstr("The 7 training prompts"));
  EXPECT_THAT(page, HasSubstr("<tr><th>0</th><td>4</td><td></td><td></td><td></td><td></td>"
                              "<td>2</td></tr>"));
  EXPECT_THAT(page, HasSubstr("<tr><th>to 3/4</th><td></td><td>1</td>"));
  EXPECT_THAT(page, HasSubstr("<tr><th>to 1/2</th><td></td><td></td><td></td>"))
      << "a count of an earlier step";
  line["prompts/seen"] = 8;
  EXPECT_THAT(Render(FormatMetricsLine(2, 2, line)), Not(HasSubstr("How far have prompts come")));
}

TEST_F(ReportTest, ANumberThatWasMeasuredOnceIsNoChart) {
  const auto page_of = [&](int checks) {
    std::string metrics;
    for (int step = 0; step < 4; ++step) {
      std::map<std::string, double> line = {{"train/reward_mean", 0.1 * step}};
      if (step < checks) line["train/onpolicy_ratio_err"] = 2e-5;
      metrics += FormatMetricsLine(static_cast<uint64_t>(step), step, line);
    }
    return Render(metrics);
  };
  const std::string once = page_of(1);
  const size_t heading = once.find("On-policy ratio error");
  ASSERT_NE(heading, std::string::npos);
  const std::string panel = once.substr(heading, once.find("</figure>", heading) - heading);
  EXPECT_THAT(panel, HasSubstr("measured at step 0 alone so far"));
  EXPECT_THAT(panel, Not(HasSubstr("<svg")));
  const std::string twice = page_of(2);
  const size_t chart = twice.find("On-policy ratio error");
  EXPECT_THAT(twice.substr(chart, twice.find("</figure>", chart) - chart), HasSubstr("<svg"));
}

// Each picture has a cell in which it is shown, and the page has an image of it.
// Promise: Pictures of any size are on the pages. Report, `oxbow watch` and `oxbow compare` show
// every held-out picture of 96 to 1024 pixels and link to its file. A sheet has at most 2^23
// pixels, and enlarges no picture of 96 and more. Prompts are text, cut after three lines until
// they are folded out. A picture that is missing, cut or damaged, and an evaluation that cannot be
// shown, is a line on the page and in the log.
TEST_F(ReportTest, SixtyFourPicturesOfARealSizeAreShown) {
  for (const int step : {0, 20, 40}) AddPhotos(run_dir_, step, 64, 512);
  const std::string page = Render(MadeUpMetrics());
  EXPECT_EQ(CountOf(page, "data:image/jpeg;base64,"), 3u);
  EXPECT_EQ(CountOf(page, "<div class=\"cell\"><a class=\"part s0 p"), 64u);
  EXPECT_EQ(CountOf(page, "<div class=\"cell\"><a class=\"part s2 p"), 64u);
  EXPECT_EQ(CountOf(page, "<div class=\"cells big\">"), 2u);
  EXPECT_THAT(page, HasSubstr("href=\"samples/step_000040/063.jpg\""));
  EXPECT_THAT(page, HasSubstr("seed 7, noise 9223372036854775811, picture 0"));
  EXPECT_THAT(page, HasSubstr("\"names\":[\"pickscore\",\"sharpness\"]"));
  EXPECT_THAT(page, HasSubstr("Show all 64 pictures"));
  EXPECT_THAT(page, Not(HasSubstr("cannot be shown")));
  EXPECT_LT(page.size(), kReportBytesMax);
}

// Promise: Pictures of any size are on the pages.
TEST_F(ReportTest, APageShowsPicturesAsLargeAsItsSizeAllows) {
  const struct {
    int side, at_least;
  } cases[] = {{96, 96}, {128, 128}, {256, 192}, {512, 192}, {1024, 192}};
  for (const auto& [side, at_least] : cases) {
    std::filesystem::remove_all(run_dir_ / "samples");
    AddPhotos(run_dir_, 0, 64, side);
    const Sprite sprite = SpriteOf(SheetsOf(run_dir_).at(0), SpriteSize::kLarge);
    ASSERT_LE(sprite.bytes.size(), SpriteBytesMax(SpriteSize::kLarge)) << side;
    const auto image = DecodeImage(sprite.bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_GE(image->width, kSpriteColumns * at_least) << side;
    EXPECT_EQ(image->width, image->height) << side;
  }
}

TEST_F(ReportTest, APromptOfAnyScriptIsTextAndALongOneIsFolded) {
  AddPhotos(run_dir_, 0, 8, 160);
  AddPhotos(run_dir_, 20, 8, 160);
  const std::string page = Render(MadeUpMetrics());
  for (const int i : {0, 1, 2, 4}) {
    // In both grids, and in the table of prompts.
    const std::string prompt = EscapeHtml(LongPrompt(i));
    EXPECT_EQ(
        CountOf(page, absl::StrCat(
                          "<details class=\"long\"><summary><span class=\"prompt\" dir=\"auto\">",
                          prompt, "</span>")),
        3u)
        << prompt;
  }
  AddSheet(40, "", 0.5);
  EXPECT_THAT(Render(MadeUpMetrics()),
              HasSubstr("<span class=\"prompt\" dir=\"auto\">digits 100</span>"));
}

// Each of them left an empty frame, or no evaluation at all, without a word.
// Promise: Pictures of any size are on the pages.
TEST_F(ReportTest, WhatCannotBeShownIsSaid) {
  AddPhotos(run_dir_, 0, 8, 160);
  const auto directory = run_dir_ / "samples/step_000000";
  std::filesystem::remove(directory / "001.png");
  const std::string whole = *ReadFile(directory / "002.png");
  ASSERT_TRUE(WriteFileAtomically(directory / "002.png", whole.substr(0, 9000)).ok());
  ASSERT_TRUE(WriteFileAtomically(directory / "003.png", "no picture at all").ok());
  std::string flipped = *ReadFile(directory / "004.png");
  flipped[flipped.size() / 2] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(directory / "004.png", flipped).ok());
  std::string page;
  {
    ::testing::internal::CaptureStderr();
    page = Render(MadeUpMetrics());
    const std::string log = ::testing::internal::GetCapturedStderr();
    for (const char* const name : {"001.png", "002.png", "003.png", "004.png"}) {
      EXPECT_THAT(log, HasSubstr(absl::StrCat("step_000000/", name))) << "in the log";
    }
  }
  EXPECT_THAT(page, HasSubstr("cannot be shown: step 0: 001.png: is not there"));
  EXPECT_THAT(page, HasSubstr("cannot be shown: step 0: 002.png: truncated PNG"));
  EXPECT_THAT(page, HasSubstr("cannot be shown: step 0: 003.png: not a PNG"));
  EXPECT_THAT(page, HasSubstr("cannot be shown: step 0: 004.png: corrupt PNG"));
  EXPECT_EQ(CountOf(page, "data:image/"), 1u) << "the other pictures are shown";

  ASSERT_TRUE(WriteFileAtomically(directory / kEvaluationFile, "[1]\n").ok());
  ASSERT_TRUE(WriteFileAtomically(directory / "eval.png", "no picture at all").ok());
  page = Render(MadeUpMetrics());
  EXPECT_THAT(page, HasSubstr("The pictures cannot be read."));
  EXPECT_THAT(page, HasSubstr("cannot be shown: step 0: eval.png: not a PNG"));
  EXPECT_THAT(page, HasSubstr("cannot be shown: step 0: eval.jsonl: "));
}

// Promise: Pictures of any size are on the pages.
TEST_F(ReportTest, AnEvaluationOfOtherPromptsIsNamedAndNotMixedIn) {
  AddSheet(0, "", 0.5);
  AddPhotos(run_dir_, 20, 8, 160);
  const std::string page = Render(MadeUpMetrics());
  EXPECT_EQ(CountOf(page, "class=\"view\""), 1u);
  EXPECT_THAT(page, HasSubstr("1 evaluation is not among them"));
}

// A sheet whose pictures have no files, as earlier versions wrote them.
TEST_F(ReportTest, ASheetAloneIsShownWhole) {
  const auto directory = run_dir_ / "samples/step_000000";
  std::filesystem::create_directories(directory);
  const Image8 photo = oxbow::testing::PhotoLike(1200, 600, 1);
  ASSERT_TRUE(WriteFileAtomically(directory / "eval.png", EncodePng(photo)).ok());
  const std::string page = Render(MadeUpMetrics());
  EXPECT_THAT(page, HasSubstr("<div class=\"sheet s0\""));
  EXPECT_THAT(page, HasSubstr("--whole:1200/600"));
  EXPECT_EQ(CountOf(page, "data:image/"), 1u);
}

TEST_F(ReportTest, AThousandStepsAndAHundredEvaluationsStaySmall) {
  std::string metrics;
  for (int step = 0; step <= 1000; ++step) {
    std::map<std::string, double> line = {{"train/reward_mean", std::sin(step)},
                                          {"train/reward_std", 0.3},
                                          {"train/grad_norm", 1 + std::cos(step)},
                                          {"time/update_s", 1}};
    if (step % 10 == 0) line["eval/reward_mean"] = step * 1e-3;
    metrics += FormatMetricsLine(step, step, line);
  }
  // Noise hardly compresses.
  AddMadeUpSheet(run_dir_, 0, "", 0, 40);
  for (int step = 10; step <= 1200; step += 10) {
    std::filesystem::copy(run_dir_ / "samples/step_000000",
                          run_dir_ / absl::StrFormat("samples/step_%06d", step));
  }
  const std::string page = Render(metrics);
  EXPECT_EQ(CountOf(page, "data:image/"), 100u);
  EXPECT_LT(page.size(), kReportBytesMax);
  EXPECT_EQ(Render(metrics), page) << "from the kept small pictures";
}

TEST_F(ReportTest, WorksForARunThatHasOnlyBegun) {
  EXPECT_THAT(Render(""), HasSubstr("No step has been logged yet."));
  const std::string one =
      Render("{\"step\":1,\"train/reward_mean\":0.5}\n{\"step\":2,\"tr", {.live = true});
  EXPECT_THAT(one, HasSubstr("reward <b>0.5</b>, measured at step 1 alone so far"));
  EXPECT_THAT(one, HasSubstr("No pictures yet."));
  EXPECT_THAT(one, HasSubstr("data-reload=\"10\""));
  EXPECT_THAT(Render("{\"step\":1,\"train/reward_mean\":0.5}\n"),
              HasSubstr("No pictures: the run made no evaluation."));
  EXPECT_THAT(Render("{\"step\":1,\"eval/failed\":1}\n", {.evaluation_failure = "no face"}),
              HasSubstr("No pictures: no face"));
}

TEST_F(ReportTest, ADirectoryThatIsNoRunIsNotFound) {
  const absl::Status status = WriteReport(run_dir_ / "missing");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

}  // namespace
}  // namespace oxbow::io
