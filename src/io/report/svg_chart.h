// SPDX-License-Identifier: Apache-2.0
// Line and stacked charts over learner steps as inline SVG; colours come from the page's style
// sheet (classes c0 .. c8), so that light, dark and print need one drawing.
//
// A drawing carries its numbers, for the page's script to show the values under the pointer: the
// steps of each line in `data-x`, its values in `data-y`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "io/metrics_file.h"

namespace oxbow::io {

// Lines beyond them begin again. Every second line is dashed: with an odd number of colours twice
// as many can be told apart.
inline constexpr size_t kColours = 9;
static_assert(kColours % 2 == 1);

struct Series {
  std::string name;
  std::vector<Point> points;  // Ascending x; gaps in the line where y is not finite.
  // Edges of a band around the line, finite, with the same steps in both; empty: none.
  std::vector<Point> low = {};
  std::vector<Point> high = {};
};

struct ChartSpec {
  std::string title;
  std::string unit;  // Unit of the y axis; shown above it.
  std::optional<double> y_min;
  std::optional<double> y_max;
  // The least range of the values' axis, which is also never below kRangeShare of the values: what
  // is flat looks flat.
  double range_min = 0;
  bool stacked = false;         // Bars on top of each other; missing values count as 0.
  bool scientific = false;      // Ticks and values as 1.5e-6.
  std::vector<double> marks;    // Steps with a mark on the axis: evaluations.
  std::vector<double> changes;  // Steps with a line across: what is measured is another behind it.
};

inline constexpr double kRangeShare = 0.05;

// At most `count` + 1 or so round numbers (1, 2 or 5 times a power of ten apart) from at or below
// `low` to at or above `high`. A constant gets a range around it.
std::vector<double> NiceTicks(double low, double high, int count);

// A number as people write it, with three digits that count: 0.960, 42.3, 1152, 3.2e-05.
std::string Number(double value, bool scientific = false);

// At most `count` or so of the points, among them the lowest and the highest of each stretch.
std::vector<Point> Thinned(const std::vector<Point>& points, size_t count);

// Whether some point is finite.
bool HasPoints(const Series& series);

// Draws the series that have a finite point, each in the colour of its place among all, with a
// legend that holds each last value, or the share of the whole where they are stacked. Requires one
// such series. Every second line is dashed, so that colour is not all that tells two apart. A
// single point is a dot; the points of a line of few are dots on it.
std::string Chart(const ChartSpec& spec, const std::vector<Series>& series);

// How drawings look in a page (html.cc): CSS variables, and rules. The series colours keep their
// order apart for the common kinds of colour blindness (Okabe-Ito).
inline constexpr char kChartColours[] =
    "--ink:#1d2126;--soft:#5d6670;--line:#e3e5e8;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0559a;--c4:#c08a00;--c5:#3d9fd6;--c6:#6b7480;"
    "--c7:#8a5a3c;--c8:#2b2f36";
inline constexpr char kChartColoursInDark[] =
    "--ink:#e6e8ea;--soft:#9aa3ad;--line:#33383e;"
    "--c0:#56b4e9;--c1:#f0863c;--c2:#2fc498;--c3:#d98ac6;--c4:#e6b422;--c5:#8fd0f5;--c6:#a5adb6;"
    "--c7:#c49878;--c8:#f2f3f5";

inline constexpr char kChartRules[] = R"css(
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.mark{fill:var(--soft)}.cursor{stroke:var(--soft);stroke-dasharray:3 3;visibility:hidden}
.tick{fill:var(--soft);font:11px system-ui,sans-serif}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.area,.dot{fill:currentColor}.band{fill:currentColor;opacity:.18}
.dash .line{stroke-dasharray:6 4}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
.c8{color:var(--c8)}
)css";

}  // namespace oxbow::io
