// SPDX-License-Identifier: Apache-2.0
#include "io/metrics_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

using Line = std::map<std::string, double>;

void AppendNumber(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  out.append(buffer, end.ptr);
}

}  // namespace

std::string FormatMetricsLine(int64_t step, double wall_seconds,
                              const std::map<std::string, double>& metrics) {
  std::string out =
      absl::StrCat("{\"", metric::kStep.name, "\":", step, ",\"", metric::kTimeWallS.name, "\":");
  AppendNumber(out, wall_seconds);
  for (const auto& [name, value] : metrics) {
    if (name == metric::kStep.name || name == metric::kTimeWallS.name) continue;
    absl::StrAppend(&out, ",", nlohmann::json(name).dump(), ":");
    AppendNumber(out, value);
  }
  out += "}\n";
  return out;
}

std::optional<Line> ParseMetricsLine(std::string_view text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  Line line;
  for (const auto& [key, value] : object.items()) {
    if (value.is_number()) line[key] = value.get<double>();
    if (value.is_null()) line[key] = std::numeric_limits<double>::quiet_NaN();
  }
  const auto step = line.find(metric::kStep);
  if (step == line.end() || !std::isfinite(step->second)) return std::nullopt;
  return line;
}

absl::StatusOr<std::vector<Line>> ParseMetrics(std::string_view content) {
  std::vector<Line> lines;
  for (int number = 1; !content.empty(); ++number) {
    const size_t newline = content.find('\n');
    if (newline == std::string_view::npos) break;  // Torn: its newline was never written.
    std::optional<Line> line = ParseMetricsLine(content.substr(0, newline));
    content.remove_prefix(newline + 1);
    if (line) {
      lines.push_back(*std::move(line));
    } else if (!content.empty()) {
      return absl::DataLossError(
          absl::StrCat("not a metrics object with a \"step\": line ", number));
    }
  }
  return lines;
}

absl::StatusOr<std::vector<Line>> ReadMetrics(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  auto lines = ParseMetrics(content);
  if (!lines.ok()) return Annotate(lines.status(), path.string());
  return lines;
}

std::vector<Line> MetricsFollower::Take() {
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  const auto size = file ? static_cast<uint64_t>(file.tellg()) : 0;
  if (size <= offset_) {
    offset_ = size;
    return {};
  }
  std::string content(size - offset_, '\0');
  file.seekg(static_cast<std::streamoff>(offset_));
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<size_t>(file.gcount()));
  content.resize(content.rfind('\n') + 1);  // 0 if no line is whole.
  offset_ += content.size();
  return ParseMetrics(content).value_or(std::vector<Line>());
}

void History::Add(const std::vector<std::map<std::string, double>>& lines) {
  for (const Line& line : lines) {
    const double step = line.at(metric::kStep);
    for (const auto& [name, value] : line) {
      std::vector<Point>& column = columns_[name];
      auto place = column.end();
      if (!column.empty() && column.back().x >= step) {
        place = std::lower_bound(column.begin(), column.end(), step,
                                 [](const Point& point, double x) { return point.x < x; });
      }
      if (place != column.end() && place->x == step) {
        place->y = value;
      } else {
        column.insert(place, {step, value});
      }
    }
  }
}

std::vector<Point> History::Column(const std::string& name) const {
  const auto column = columns_.find(name);
  return column == columns_.end() ? std::vector<Point>() : column->second;
}

double History::last_step() const {
  const auto steps = columns_.find(metric::kStep.name);
  return steps == columns_.end() ? 0 : steps->second.back().x;
}

std::string History::FirstPresent(const std::vector<std::string>& names) const {
  OXBOW_CHECK(!names.empty()) << "no metric to look for";
  for (const std::string& name : names) {
    if (columns_.contains(name)) return name;
  }
  return names.front();
}

std::vector<std::string> History::NamesWithPrefix(const std::string& prefix) const {
  std::vector<std::string> names;
  for (auto column = columns_.lower_bound(prefix);
       column != columns_.end() && column->first.starts_with(prefix); ++column) {
    names.push_back(column->first);
  }
  return names;
}

std::optional<Point> History::First(const std::string& name) const {
  const auto column = columns_.find(name);
  if (column == columns_.end()) return std::nullopt;
  for (const Point& point : column->second) {
    if (std::isfinite(point.y)) return point;
  }
  return std::nullopt;
}

std::optional<Point> History::Last(const std::string& name) const {
  const auto column = columns_.find(name);
  if (column == columns_.end()) return std::nullopt;
  const std::vector<Point>& points = column->second;
  const auto last = std::find_if(points.rbegin(), points.rend(),
                                 [](const Point& point) { return std::isfinite(point.y); });
  if (last == points.rend()) return std::nullopt;
  return *last;
}

}  // namespace oxbow::io
