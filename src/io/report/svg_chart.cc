// SPDX-License-Identifier: Apache-2.0
#include "io/report/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "io/report/html.h"

namespace oxbow::io {
namespace {

constexpr double kWidth = 460, kHeight = 230;
constexpr double kLeft = 52, kRight = 12, kTop = 14, kBottom = 34;
constexpr size_t kPointsMax = 500;  // A line has no more; the chart is 460 wide.
constexpr size_t kBarsMax = 60;
constexpr size_t kDotsMax = 40;  // A line of so few points has a dot at each.

struct Axis {
  double low = 0;
  double high = 1;
  std::vector<double> ticks;
  double pixel_low = 0;
  double pixel_high = 1;

  double At(double value) const {
    return pixel_low + (value - low) / (high - low) * (pixel_high - pixel_low);
  }
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Axis MakeAxis(const Range& range, int ticks, double pixel_low, double pixel_high) {
  Axis axis{.pixel_low = pixel_low, .pixel_high = pixel_high};
  axis.ticks = NiceTicks(range.low, range.high, ticks);
  axis.low = axis.ticks.front();
  axis.high = axis.ticks.back();
  return axis;
}

// Each series as its means over stretches of the steps, the same stretches for all: what a series
// does not have at a step counts as 0.
std::vector<Series> Binned(const std::vector<Series>& series) {
  std::map<double, size_t> places;
  for (const Series& one : series) {
    for (const Point& point : one.points) places[point.x] = 0;
  }
  const size_t bins = std::min(kBarsMax, places.size());
  std::vector<Point> empty(bins);
  std::vector<double> counts(bins);
  size_t place = 0;
  for (auto& [x, bin] : places) {
    bin = place++ * bins / places.size();
    empty[bin].x += x;
    ++counts[bin];
  }
  for (size_t bin = 0; bin < bins; ++bin) empty[bin].x /= counts[bin];
  std::vector<Series> binned;
  for (const Series& one : series) {
    binned.push_back({one.name, empty});
    for (const Point& point : one.points) {
      const size_t bin = places.at(point.x);
      if (std::isfinite(point.y)) binned.back().points[bin].y += point.y / counts[bin];
    }
  }
  return binned;
}

// Each series becomes its own top edge: the sum of it and all before it.
std::vector<Series> Stack(std::vector<Series> series) {
  for (size_t i = 1; i < series.size(); ++i) {
    for (size_t j = 0; j < series[i].points.size(); ++j) {
      series[i].points[j].y += series[i - 1].points[j].y;
    }
  }
  return series;
}

std::string Place(const Axis& x, const Axis& y, const Point& point) {
  return absl::StrFormat("%.1f,%.1f", x.At(point.x),
                         std::clamp(y.At(point.y), kTop - 2, kHeight - kBottom + 2));
}

// The numbers of a line for the page's script: with four digits, gaps left out.
std::string Numbers(const std::vector<Point>& points) {
  std::string steps, values;
  for (const Point& point : points) {
    if (!std::isfinite(point.y)) continue;
    absl::StrAppendFormat(&steps, "%s%.6g", steps.empty() ? "" : " ", point.x);
    absl::StrAppendFormat(&values, "%s%.4g", values.empty() ? "" : " ", point.y);
  }
  return absl::StrCat(" data-x=\"", steps, "\" data-y=\"", values, "\"");
}

// Every second line.
const char* DashOf(size_t i) { return i % 2 == 1 ? " dash" : ""; }

std::string Band(const Axis& x, const Axis& y, const Series& series) {
  if (series.low.size() < 2) return "";
  std::string path;
  for (const Point& point : series.high) absl::StrAppend(&path, Place(x, y, point), " ");
  for (auto point = series.low.rbegin(); point != series.low.rend(); ++point) {
    absl::StrAppend(&path, Place(x, y, *point), " ");
  }
  path.pop_back();
  return absl::StrCat("<polygon class=\"band\" points=\"", path, "\"/>");
}

std::string Line(const Axis& x, const Axis& y, const Series& series, size_t place) {
  std::string out = absl::StrFormat("<g class=\"c%d%s\" data-name=\"%s\"%s>", place % kColours,
                                    DashOf(place), EscapeHtml(series.name), Numbers(series.points));
  out += Band(x, y, series);
  const std::vector<Point>& points = series.points;
  const bool dots = points.size() <= kDotsMax;
  for (size_t start = 0; start < points.size();) {
    if (!std::isfinite(points[start].y)) {
      ++start;
      continue;
    }
    size_t end = start;
    std::string path;
    for (; end < points.size() && std::isfinite(points[end].y); ++end) {
      absl::StrAppend(&path, path.empty() ? "" : " ", Place(x, y, points[end]));
    }
    if (end - start > 1) {
      absl::StrAppend(&out, "<polyline class=\"line\" points=\"", path, "\"/>");
    }
    for (size_t i = start; i < end && (dots || end - start == 1); ++i) {
      absl::StrAppendFormat(&out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"/>",
                            x.At(points[i].x),
                            std::clamp(y.At(points[i].y), kTop - 2, kHeight - kBottom + 2));
    }
    start = end;
  }
  return out + "</g>";
}

std::string Bars(const Axis& x, const Axis& y, const std::vector<Series>& series,
                 const std::vector<Series>& stacked) {
  std::string out;
  const double count = static_cast<double>(series.front().points.size());
  const double room = (x.pixel_high - x.pixel_low) / count;
  const double width = room - std::min(1.0, room / 4);
  for (size_t i = 0; i < stacked.size(); ++i) {
    absl::StrAppendFormat(&out, "<g class=\"c%d\" data-name=\"%s\"%s>", i % kColours,
                          EscapeHtml(series[i].name), Numbers(series[i].points));
    for (size_t j = 0; j < stacked[i].points.size(); ++j) {
      const Point& top = stacked[i].points[j];
      const double from = i == 0 ? 0 : stacked[i - 1].points[j].y;
      if (!(top.y > from)) continue;
      absl::StrAppendFormat(
          &out, "<rect class=\"area\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
          x.At(top.x) - width / 2, y.At(top.y), width, y.At(from) - y.At(top.y));
    }
    out += "</g>";
  }
  return out;
}

// A round number without the zeros that Number writes: 20, 0.8; where `scientific`, 5e-6, but 1.
std::string TickText(double tick, bool scientific = false) {
  const double size = std::abs(tick);
  if (!scientific || size == 0 || (size >= 1e-2 && size < 1e5)) {
    return absl::StrFormat("%.6g", tick);
  }
  const int power = static_cast<int>(std::floor(std::log10(size) + 1e-9));
  return absl::StrFormat("%.3ge%d", tick / std::pow(10.0, power), power);
}

std::string AxesSvg(const ChartSpec& spec, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : y.ticks) {
    absl::StrAppendFormat(
        &out,
        "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
        "<text class=\"tick\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
        kLeft, kWidth - kRight, y.At(tick), y.At(tick), kLeft - 7, y.At(tick) + 3.5,
        TickText(tick, spec.scientific));
  }
  for (const double tick : x.ticks) {
    absl::StrAppendFormat(
        &out, "<text class=\"tick\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>",
        x.At(tick), kHeight - kBottom + 16, TickText(tick));
  }
  for (const double mark : spec.marks) {
    if (mark < x.low || mark > x.high) continue;
    absl::StrAppendFormat(&out, "<path class=\"mark\" d=\"M%.1f %.0fl3 5h-6z\"/>", x.At(mark),
                          kHeight - kBottom);
  }
  for (const double change : spec.changes) {
    if (change < x.low || change > x.high) continue;
    absl::StrAppendFormat(&out,
                          "<line class=\"axis\" stroke-dasharray=\"4 3\" x1=\"%.1f\" x2=\"%.1f\" "
                          "y1=\"%.0f\" y2=\"%.0f\"/>",
                          x.At(change), x.At(change), kTop, kHeight - kBottom);
  }
  absl::StrAppendFormat(
      &out,
      "<line class=\"axis\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\"/>"
      "<text class=\"tick\" x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">learner step</text>",
      kLeft, kWidth - kRight, kHeight - kBottom, kHeight - kBottom, kWidth - kRight, kHeight - 3);
  return out;
}

std::string Legend(const ChartSpec& spec, const std::vector<Series>& series) {
  std::string out = "<p class=\"legend\">";
  double total = 0;
  for (const Series& one : series) {
    for (const Point& point : one.points) total += std::isfinite(point.y) ? point.y : 0;
  }
  for (size_t i = 0; i < series.size(); ++i) {
    if (!HasPoints(series[i])) continue;
    double last = 0, sum = 0;
    for (const Point& point : series[i].points) {
      if (!std::isfinite(point.y)) continue;
      last = point.y;
      sum += point.y;
    }
    const std::string value = spec.stacked
                                  ? absl::StrFormat("<b>%.0f %%</b>", 100 * sum / total)
                                  : absl::StrCat("last <b>", Number(last, spec.scientific), "</b>");
    absl::StrAppendFormat(&out, "<span><i class=\"c%d%s\"></i>%s %s</span> ", i % kColours,
                          spec.stacked ? "" : DashOf(i), EscapeHtml(series[i].name), value);
  }
  return out + "</p>";
}

// The ranges of the drawn values, widened to what the spec asks for.
Range ValueRange(const ChartSpec& spec, const std::vector<Series>& drawn) {
  Range range;
  for (const Series& one : drawn) {
    for (const std::vector<Point>* line : {&one.points, &one.low, &one.high}) {
      for (const Point& point : *line) range.Include(point.y);
    }
  }
  if (spec.stacked) range.Include(0);
  if (spec.y_min) range.Include(*spec.y_min);
  if (spec.y_max) range.Include(*spec.y_max);
  const double size = std::max(std::abs(range.low), std::abs(range.high));
  const double least = std::max(spec.range_min, kRangeShare * size);
  const double missing = least - (range.high - range.low);
  if (missing <= 0) return range;
  // Numbers that cannot be negative get no room below 0.
  const double floor = spec.y_min ? *spec.y_min : range.low >= 0 ? 0 : range.low - missing;
  range.low = std::max(range.low - missing / 2, floor);
  range.high = range.low + least;
  return range;
}

// With bars it begins and ends with a whole one.
Axis StepAxis(const std::vector<Series>& drawn, bool bars) {
  Range steps;
  for (const Series& one : drawn) {
    for (const Point& point : one.points) steps.Include(point.x);
  }
  Axis x = MakeAxis(steps, 6, kLeft, kWidth - kRight);
  if (steps.high > steps.low) {  // Steps end where the data ends, not at the next round number.
    x.low = steps.low;
    x.high = steps.high;
    std::erase_if(x.ticks, [&](double tick) { return tick < x.low || tick > x.high; });
  } else {
    x.ticks = {steps.low};
  }
  if (!bars) return x;
  const double count = static_cast<double>(drawn.front().points.size());
  const double half = count > 1 ? (steps.high - steps.low) / (count - 1) / 2 : 0.5;
  x.low = steps.low - half;
  x.high = steps.high + half;
  return x;
}

// The drawing alone: no title, no legend. Requires a finite point.
std::string Drawing(const ChartSpec& spec, const std::vector<Series>& series) {
  const std::vector<Series> drawn = spec.stacked ? Stack(series) : series;
  const Axis x = StepAxis(drawn, spec.stacked);
  const Axis y = MakeAxis(ValueRange(spec, drawn), 4, kHeight - kBottom, kTop);
  std::string out = absl::StrFormat(
      "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s over learner steps\" "
      "data-low=\"%.6g\" data-high=\"%.6g\" data-left=\"%.0f\" data-right=\"%.0f\">",
      kWidth, kHeight, EscapeHtml(spec.title), x.low, x.high, kLeft, kWidth - kRight);
  out += AxesSvg(spec, x, y);
  if (spec.stacked) {
    out += Bars(x, y, series, drawn);
  } else {
    for (size_t i = 0; i < drawn.size(); ++i) {
      if (HasPoints(drawn[i])) out += Line(x, y, drawn[i], i);
    }
  }
  return out + "<line class=\"cursor\" y1=\"10\" y2=\"196\"/></svg>";
}

}  // namespace

std::vector<double> NiceTicks(double low, double high, int count) {
  if (!std::isfinite(low) || !std::isfinite(high)) low = 0, high = 1;
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= size * 1e-12) {
    low -= size * 0.5;
    high += size > 0 ? size * 0.5 : 1;
  }
  const double rough = high / count - low / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  const double last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i == 0 ? 0.0 : i * step);
  return ticks;
}

std::string Number(double value, bool scientific) {
  if (!std::isfinite(value)) return "not a number";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (scientific || size < 1e-4 || size >= 1e7) return absl::StrFormat("%.1e", value);
  if (size >= 100) return absl::StrFormat("%.0f", value);
  if (size >= 10) return absl::StrFormat("%.1f", value);
  return size >= 1 ? absl::StrFormat("%.2f", value) : absl::StrFormat("%.3g", value);
}

std::vector<Point> Thinned(const std::vector<Point>& points, size_t count) {
  if (points.size() <= count || count < 4) return points;
  const size_t bins = count / 2;
  std::vector<Point> kept;
  for (size_t bin = 0; bin < bins; ++bin) {
    const size_t begin = bin * points.size() / bins, end = (bin + 1) * points.size() / bins;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (points[i].y < points[low].y || !std::isfinite(points[low].y)) low = i;
      if (points[i].y > points[high].y || !std::isfinite(points[high].y)) high = i;
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
  }
  return kept;
}

bool HasPoints(const Series& series) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [](const Point& point) { return std::isfinite(point.y); });
}

std::string Chart(const ChartSpec& spec, const std::vector<Series>& series) {
  OXBOW_CHECK(std::any_of(series.begin(), series.end(), HasPoints))
      << "a chart without numbers: " << spec.title;
  std::vector<Series> thin;
  for (const Series& one : series) {
    thin.push_back(spec.stacked
                       ? one
                       : Series{one.name, Thinned(one.points, kPointsMax),
                                Thinned(one.low, kPointsMax), Thinned(one.high, kPointsMax)});
  }
  return absl::StrCat("<h3>", EscapeHtml(spec.title), " <small>", EscapeHtml(spec.unit),
                      "</small></h3>", Legend(spec, thin),
                      Drawing(spec, spec.stacked ? Binned(thin) : thin));
}

}  // namespace oxbow::io
