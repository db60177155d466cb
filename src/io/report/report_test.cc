#include "io/report/report.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/image.h"
#include "io/metrics_file.h"
#include "io/report/svg_chart.h"

namespace oxbow::io {
namespace {

using testing::HasSubstr;
using testing::Not;

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    std::filesystem::remove_all(run_dir_);
    std::filesystem::create_directories(run_dir_);
  }

  std::string Render(const std::string& metrics) {
    EXPECT_TRUE(WriteFileAtomically(run_dir_ / "metrics.jsonl", metrics).ok());
    const absl::Status status = WriteReport(run_dir_);
    EXPECT_TRUE(status.ok()) << status;
    return *ReadFile(run_dir_ / "report.html");
  }

  void AddSheet(int step, const std::string& caption) {
    const auto directory = run_dir_ / "samples" / absl::StrFormat("step_%06d", step);
    std::filesystem::create_directories(directory);
    const std::vector<GridCell> cells(
        64,
        {{20, 8, 1, std::vector<uint8_t>(160, 90)}, step > 0 ? kRightColour : kWrongColour, "473"});
    ASSERT_TRUE(WriteFileAtomically(directory / "eval.png", EncodePng(Grid(cells))).ok());
    ASSERT_TRUE(WriteFileAtomically(directory / "eval.txt", caption).ok());
  }

  const std::filesystem::path run_dir_ =
      std::filesystem::path(testing::TempDir()) / "report_test" /
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

// A made-up run that resembles a good one; look at it in a browser after changing the page.
std::string MadeUpRun() {
  std::string metrics = FormatMetricsLine(0, 0.4,
                                          {{"eval/reward_mean", 0.52},
                                           {"eval/strict_mean", 0.13},
                                           {"eval/speckle_mean", 0.016},
                                           {"eval/minority_share", 0.5}});
  for (int step = 1; step <= 100; ++step) {
    const double t = step / 100.0, wave = std::sin(step * 1.7);
    std::map<std::string, double> line{
        {"train/reward_mean", 0.5 + 0.45 * (1 - std::exp(-4 * t)) + 0.015 * wave},
        {"train/reward_zero_std_ratio", 0.05 + 0.6 * t * t},
        {"train/clip_frac_total", 0.02 + 0.01 * wave * wave},
        {"train/clip_frac_fresh", 0.01 + 0.004 * wave},
        {"train/clip_frac_replay", step < 5 ? std::nan("") : 0.08 + 0.03 * wave},
        {"train/iw_mean", 0.97 + 0.02 * wave},
        {"train/iw_min", 0.7 + 0.1 * wave},
        {"train/iw_ess", 0.93},
        {"train/onpolicy_ratio_err", 0},
        {"train/kl_div", 2e-3 * t},
        {"buffer/size", std::min(512, step * 6)},
        {"buffer/staleness_mean", 3 * t},
        {"buffer/staleness_p95", 11 * t},
        {"throughput/samples_per_s", 400 + 20 * wave},
        {"time/step_s", 0.22},
        {"time/wait_s", 0.05},
        {"time/forward_backward_s", 0.12 + 0.01 * wave},
        {"time/optimizer_s", 0.02},
        {"time/publish_s", 0.03}};
    if (step % 10 == 0) {
      line["eval/reward_mean"] = 0.52 + 0.45 * (1 - std::exp(-4 * t));
      line["eval/strict_mean"] = 0.13 + 0.78 * (1 - std::exp(-3 * t));
      line["eval/speckle_mean"] = 0.016 + 0.02 * t;
      line["eval/minority_share"] = 0.5 * std::exp(-3 * t);
    }
    metrics += FormatMetricsLine(step, 0.4 + 0.22 * step, line);
  }
  return metrics;
}

TEST_F(ReportTest, ShowsHeadlinesSheetsAndCurvesWithoutNetworkOrScripts) {
  AddSheet(0, "64 prompts, 8 right");
  AddSheet(10, "in between");
  AddSheet(100, "64 prompts, 60 right");
  ASSERT_TRUE(WriteFileAtomically(run_dir_ / "config.resolved.yaml", "run: {name: <b>}\n").ok());
  const std::string page = Render(MadeUpRun());
  EXPECT_THAT(page, HasSubstr("<em>0.52 &rarr;</em> 0.962"));
  EXPECT_THAT(page, HasSubstr("Before: step 0"));
  EXPECT_THAT(page, HasSubstr("After: step 100"));
  EXPECT_THAT(page, HasSubstr("64 prompts, 60 right"));
  EXPECT_THAT(page, Not(HasSubstr("in between")));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;"));
  EXPECT_THAT(page, HasSubstr("forward backward"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("Not measured")));
}

TEST_F(ReportTest, WorksForARunThatHasOnlyBegun) {
  EXPECT_THAT(Render(""), HasSubstr("No step has been logged yet."));
  const std::string one = Render("{\"step\":1,\"train/reward_mean\":0.5}\n{\"step\":2,\"tr");
  EXPECT_THAT(one, HasSubstr("<broadcast group"));
  EXPECT_THAT(one, HasSubstr("Not measured in this run."));
  EXPECT_THAT(one, HasSubstr("No sheets yet."));
}

TEST_F(ReportTest, ADirectoryThatIsNoRunIsNotFound) {
  const absl::Status status = WriteReport(run_dir_ / "missing");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

TEST(SvgChartTest, TicksAreRoundAndEnclose) {
  EXPECT_THAT(NiceTicks(0, 1, 5),
              testing::Pointwise(testing::DoubleNear(1e-12), {0., .2, .4, .6, .8, 1.}));
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {0, 0}, {5, 5}, {-3, 1e-9}, {1e-7, 3e-7}, {0.517, 0.962}, {-1e300, 1e300}}) {
    const auto ticks = NiceTicks(low, high, 4);
    ASSERT_GE(ticks.size(), 2u) << low << " " << high;
    EXPECT_LE(ticks.size(), 7u) << low << " " << high;
    EXPECT_LE(ticks.front(), low + (high - low) * 1e-8);
    EXPECT_GE(ticks.back(), high - (high - low) * 1e-8);
  }
}

TEST(SvgChartTest, NotANumberBreaksTheLine) {
  const std::string chart =
      Chart({.title = "x"}, {{"y", {{0, 1}, {1, 2}, {2, std::nan("")}, {3, 1}, {4, 2}}}});
  size_t lines = 0;
  for (size_t at = 0; (at = chart.find("<polyline", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 2u);
}

}  // namespace
}  // namespace oxbow::io
