// SPDX-License-Identifier: Apache-2.0
#include "io/report/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace oxbow::io {
namespace {

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(SvgChartTest, TicksAreRoundAndEnclose) {
  EXPECT_THAT(NiceTicks(0, 1, 5),
              ::testing::Pointwise(::testing::DoubleNear(1e-12), {0., .2, .4, .6, .8, 1.}));
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
  EXPECT_EQ(CountOf(chart, "<polyline"), 2u);
  EXPECT_THAT(chart, ::testing::HasSubstr("data-x=\"0 1 3 4\" data-y=\"1 2 1 2\""));
}

TEST(SvgChartTest, TheLegendSaysThatItsNumberIsTheLastAndDashesEverySecondLine) {
  const std::string chart = Chart(
      {.title = "x"}, {{"a", {{0, 1}, {1, 2}}}, {"b", {{0, 3}, {1, 4}}}, {"c", {{0, 5}, {1, 6}}}});
  EXPECT_THAT(chart, ::testing::HasSubstr("a last <b>2.00</b>"));
  EXPECT_EQ(CountOf(chart, "class=\"c1 dash\""), 2u) << "in the chart and in the legend";
  EXPECT_EQ(CountOf(chart, " dash\""), 2u);
}

TEST(SvgChartTest, ABandIsDrawnAroundItsLineAndFitsTheAxis) {
  const std::string chart =
      Chart({.title = "x"}, {{"y", {{0, 1}, {1, 2}}, {{0, 0.5}, {1, 1.5}}, {{0, 1.5}, {1, 40}}}});
  EXPECT_EQ(CountOf(chart, "<polygon class=\"band\""), 1u);
  EXPECT_THAT(chart, ::testing::HasSubstr(">40</text>"));
}

TEST(SvgChartTest, ScientificTicksAreShort) {
  const std::string chart = Chart({.title = "x", .scientific = true}, {{"y", {{0, 0}, {1, 4e-6}}}});
  EXPECT_THAT(chart, ::testing::HasSubstr(">2e-6</text>"));
  EXPECT_THAT(chart, ::testing::HasSubstr(">0</text>"));
  EXPECT_THAT(Chart({.title = "x", .scientific = true}, {{"y", {{0, 0}, {1, 1}}}}),
              ::testing::Not(::testing::HasSubstr("e+00</text>")));
}

TEST(SvgChartTest, OnePointIsADotAndItsStepTheOnlyTick) {
  const std::string chart = Chart({.title = "x"}, {{"y", {{1, 0.5}}}});
  EXPECT_EQ(CountOf(chart, "<circle"), 1u);
  EXPECT_EQ(CountOf(chart, "text-anchor=\"middle\""), 1u);
}

TEST(SvgChartTest, ThinningKeepsPeaksAndOrder) {
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({1. * i, std::sin(i / 500.0)});
  points[77'777].y = 9;
  points[33'333].y = -9;
  const std::vector<Point> thin = Thinned(points, 1000);
  EXPECT_LE(thin.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(),
                             [](const Point& a, const Point& b) { return a.x < b.x; }));
  const auto has = [&](double y) {
    return std::any_of(thin.begin(), thin.end(), [&](const Point& point) { return point.y == y; });
  };
  EXPECT_TRUE(has(9) && has(-9));
  EXPECT_EQ(Thinned({{1, 1}, {2, 2}}, 1000).size(), 2u);
}

// The bars of a part add up to what it took, whichever steps it happened at.
TEST(SvgChartTest, ARarePartOfAStackIsSpreadOverItsBarNotARamp) {
  Series often{"update", {}}, rare{"evaluation", {}};
  for (int step = 1; step <= 600; ++step) {
    often.points.push_back({1. * step, 1});
    if (step % 10 == 0) rare.points.push_back({1. * step, 5});
  }
  const std::string chart = Chart({.title = "x", .stacked = true}, {often, rare});
  EXPECT_EQ(CountOf(chart, "<rect"), 120u);
  EXPECT_THAT(chart, ::testing::HasSubstr("update <b>67 %</b>"));
  EXPECT_THAT(chart, ::testing::HasSubstr("evaluation <b>33 %</b>"));
}

// The number in each `attribute="12.5"` of the rectangles.
std::vector<double> NumbersOf(const std::string& chart, const std::string& attribute) {
  std::vector<double> numbers;
  for (size_t at = 0; (at = chart.find("<rect", at)) != std::string::npos; ++at) {
    numbers.push_back(
        std::stod(chart.substr(chart.find(" " + attribute + "=\"", at) + attribute.size() + 3)));
  }
  return numbers;
}

TEST(SvgChartTest, BarsStandWholeInsideTheAxesAndBesideEachOther) {
  for (const int count : {1, 2, 3, 60}) {
    Series one{"update", {}};
    for (int step = 1; step <= count; ++step) one.points.push_back({1. * step, 1});
    const std::string chart = Chart({.title = "x", .stacked = true}, {one});
    const std::vector<double> left = NumbersOf(chart, "x"), width = NumbersOf(chart, "width");
    ASSERT_EQ(left.size(), static_cast<size_t>(count));
    EXPECT_GE(left.front(), 52 - 0.1);
    EXPECT_LE(left.back() + width.back(), 460 - 12 + 0.1) << count;
    for (size_t i = 1; i < left.size(); ++i) {
      EXPECT_LE(left[i - 1] + width[i - 1], left[i] + 0.1) << count;
      EXPECT_NEAR(width[i], width[0], 0.11) << count;
    }
  }
}

// The lowest and the highest number beside the value axis.
std::pair<double, double> AxisOf(const std::string& chart) {
  const std::string mark = "text-anchor=\"end\">";
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (size_t at = 0; (at = chart.find(mark, at)) != std::string::npos; ++at) {
    const std::string text = chart.substr(at + mark.size(), 12);
    if (text.starts_with("learner")) continue;
    low = std::min(low, std::stod(text));
    high = std::max(high, std::stod(text));
  }
  return {low, high};
}

// Promise: Evaluations of different settings are not compared.
TEST(SvgChartTest, AFlatLineLooksFlatAndAChangeThatCountsDoesNot) {
  const auto axis = [](ChartSpec spec, double from, double to) {
    spec.title = "x";
    return AxisOf(Chart(spec, {{"y", {{0, from}, {1, to}}}}));
  };
  const auto [low, high] = axis({}, 21.3, 21.31);
  EXPECT_GE(high - low, 0.05 * 21.3) << "noise filled the axis";
  EXPECT_LE(low, 21.3);
  EXPECT_GE(high, 21.31);
  EXPECT_LE(high - low, 4);
  EXPECT_LE(axis({}, 20, 22).second, 23) << "one tenth is seen";
  EXPECT_GE(axis({}, 20, 22).first, 19);
  EXPECT_GE(axis({.range_min = 0.4}, 0.5, 0.51).second - axis({.range_min = 0.4}, 0.5, 0.51).first,
            0.4);
  EXPECT_EQ(axis({.range_min = 0.4}, 0.01, 0.02).first, 0) << "nothing here is negative";
  EXPECT_LT(axis({.range_min = 0.4}, -0.01, 0.02).first, -0.1);
  EXPECT_EQ(axis({.y_min = 0, .range_min = 0.4}, 0.01, 0.02).first, 0);
}

TEST(SvgChartTest, NoTwoLinesOfTwiceAsManyAsColoursLookAlike) {
  std::vector<Series> lines;
  for (size_t i = 0; i < 2 * kColours; ++i)
    lines.push_back({absl::StrCat("line ", i), {{0, 1}, {1, 2}}});
  const std::string chart = Chart({.title = "x"}, lines);
  for (size_t i = 0; i < kColours; ++i) {
    EXPECT_EQ(CountOf(chart, absl::StrCat("<g class=\"c", i, "\"")), 1u);
    EXPECT_EQ(CountOf(chart, absl::StrCat("<g class=\"c", i, " dash\"")), 1u);
    for (const char* colours : {kChartColours, kChartColoursInDark}) {
      EXPECT_EQ(CountOf(colours, absl::StrCat("--c", i, ":#")), 1u);
    }
    EXPECT_EQ(CountOf(kChartRules, absl::StrCat(".c", i, "{color:var(--c", i, ")}")), 1u);
  }
}

TEST(SvgChartTest, ALineHasTheColourOfItsPlaceWhateverIsMissing) {
  const std::string chart = Chart({.title = "x"}, {{"a", {}}, {"b", {{0, 1}, {1, 2}}}});
  EXPECT_EQ(CountOf(chart, "class=\"c1 dash\""), 2u) << "in the drawing and in the legend";
  EXPECT_EQ(CountOf(chart, "class=\"c0"), 0u);
  EXPECT_EQ(CountOf(chart, "<span>"), 1u);
}

TEST(SvgChartTest, NumbersHaveThreeDigitsThatCount) {
  EXPECT_EQ(Number(0.9770001), "0.977");
  EXPECT_EQ(Number(0.93), "0.93");
  EXPECT_EQ(Number(42.31), "42.3");
  EXPECT_EQ(Number(3030), "3030");
  EXPECT_EQ(Number(4.5), "4.50");
  EXPECT_EQ(Number(0), "0");
  EXPECT_EQ(Number(3.2e-5), "3.2e-05");
}

}  // namespace
}  // namespace oxbow::io
