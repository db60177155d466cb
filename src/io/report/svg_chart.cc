#include "io/report/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "io/report/html.h"

namespace oxbow::io {
namespace {

constexpr double kWidth = 460, kHeight = 230;
constexpr double kLeft = 52, kRight = 12, kTop = 14, kBottom = 34;
constexpr int kColours = 8;

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

bool HasPoints(const Series& series) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [](const Point& point) { return std::isfinite(point.y); });
}

// Each series becomes its own top edge: the sum of it and all before it.
std::vector<Series> Stack(const std::vector<Series>& series) {
  std::map<double, double> sums;
  for (const Series& one : series) {
    for (const Point& point : one.points) sums[point.x] = 0;
  }
  std::vector<Series> stacked;
  for (const Series& one : series) {
    for (const Point& point : one.points) {
      if (std::isfinite(point.y)) sums[point.x] += point.y;
    }
    stacked.push_back({one.name, {}});
    for (const auto& [x, y] : sums) stacked.back().points.push_back({x, y});
  }
  return stacked;
}

std::string Place(const Axis& x, const Axis& y, const Point& point) {
  return absl::StrFormat("%.1f,%.1f", x.At(point.x),
                         std::clamp(y.At(point.y), kTop - 2, kHeight - kBottom + 2));
}

std::string Line(const Axis& x, const Axis& y, const std::vector<Point>& points, int colour) {
  std::string out;
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
    if (end - start == 1) {
      absl::StrAppendFormat(&out,
                            "<broadcast group class=\"c%d dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                            colour, x.At(points[start].x), y.At(points[start].y));
    } else {
      absl::StrAppendFormat(&out, "<polyline class=\"c%d line\" points=\"%s\"/>", colour, path);
    }
    start = end;
  }
  return out;
}

std::string Areas(const Axis& x, const Axis& y, const std::vector<Series>& stacked) {
  std::string out;
  for (size_t i = stacked.size(); i-- > 0;) {  // The highest first; lower ones cover it.
    const std::vector<Point>& points = stacked[i].points;
    std::string path = Place(x, y, {points.front().x, 0});
    for (const Point& point : points) absl::StrAppend(&path, " ", Place(x, y, point));
    absl::StrAppend(&path, " ", Place(x, y, {points.back().x, 0}));
    absl::StrAppendFormat(&out, "<polygon class=\"c%d area\" points=\"%s\"/>", i % kColours, path);
  }
  return out;
}

std::string AxesSvg(const ChartSpec& spec, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : y.ticks) {
    absl::StrAppendFormat(
        &out,
        "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
        "<text class=\"tick\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
        kLeft, kWidth - kRight, y.At(tick), y.At(tick), kLeft - 7, y.At(tick) + 3.5,
        Number(tick, spec.scientific && tick != 0));
  }
  for (const double tick : x.ticks) {
    absl::StrAppendFormat(
        &out, "<text class=\"tick\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%s</text>",
        x.At(tick), kHeight - kBottom + 16, Number(tick));
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
  for (size_t i = 0; i < series.size(); ++i) {
    double last = 0;
    for (const Point& point : series[i].points) {
      if (std::isfinite(point.y)) last = point.y;
    }
    absl::StrAppendFormat(&out, "<span><i class=\"c%d\"></i>%s <b>%s</b></span> ", i % kColours,
                          EscapeHtml(series[i].name), Number(last, spec.scientific));
  }
  return out + "</p>";
}

// The ranges of the drawn values, widened to what the spec asks for.
Range ValueRange(const ChartSpec& spec, const std::vector<Series>& drawn) {
  Range range;
  for (const Series& one : drawn) {
    for (const Point& point : one.points) range.Include(point.y);
  }
  if (spec.stacked) range.Include(0);
  if (spec.y_min) range.Include(*spec.y_min);
  if (spec.y_max) range.Include(*spec.y_max);
  return range;
}

std::string Drawing(const ChartSpec& spec, const std::vector<Series>& series) {
  const std::vector<Series> drawn = spec.stacked ? Stack(series) : series;
  Range steps;
  for (const Series& one : drawn) {
    for (const Point& point : one.points) steps.Include(point.x);
  }
  Axis x = MakeAxis(steps, 6, kLeft, kWidth - kRight);
  if (steps.high > steps.low) {  // Steps end where the data ends, not at the next round number.
    x.low = steps.low;
    x.high = steps.high;
    std::erase_if(x.ticks, [&](double tick) { return tick < x.low || tick > x.high; });
  }
  const Axis y = MakeAxis(ValueRange(spec, drawn), 4, kHeight - kBottom, kTop);
  std::string out = absl::StrFormat(
      "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s over learner steps\">", kWidth,
      kHeight, EscapeHtml(spec.title));
  out += AxesSvg(spec, x, y);
  if (spec.stacked) {
    out += Areas(x, y, drawn);
  } else {
    for (size_t i = 0; i < drawn.size(); ++i) {
      out += Line(x, y, drawn[i].points, static_cast<int>(i) % kColours);
    }
  }
  return out + "</svg>";
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
  if (size >= 1000) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.3g", value);
}

std::string Chart(const ChartSpec& spec, const std::vector<Series>& series) {
  std::vector<Series> present;
  std::copy_if(series.begin(), series.end(), std::back_inserter(present), HasPoints);
  std::string out = absl::StrCat("<h3>", EscapeHtml(spec.title), " <small>", EscapeHtml(spec.unit),
                                 "</small></h3>");
  if (present.empty()) return out + "<p class=\"none\">Not measured in this run.</p>";
  return absl::StrCat(out, Legend(spec, present), Drawing(spec, present));
}

}  // namespace oxbow::io
