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

}  // namespace oxbow::io
