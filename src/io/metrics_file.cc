// SPDX-License-Identifier: Apache-2.0
#include "io/metrics_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {
namespace {

using Line = std::map<std::string, double>;

void AppendDecimal(std::string& out, double value) {
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
  AppendDecimal(out, wall_seconds);
  for (const auto& [name, value] : metrics) {
    if (name == metric::kStep.name || name == metric::kTimeWallS.name) continue;
    absl::StrAppend(&out, ",", nlohmann::json(name).dump(), ":");
    AppendDecimal(out, value);
  }
  out += "}\n";
  return out;
}

std::optional<Line> ParseMetricsLine(std::string_view text) {
  const nlohmann::json object = ParseJson(text);
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

absl::Status ReadMetricsFrom(const std::filesystem::path& path, uint64_t& offset,
                             const TakeLine& take) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open: ", path.string()));
  file.seekg(static_cast<std::streamoff>(offset));
  std::string held;  // The beginning of a line whose end has not been read.
  int number = 0, damaged = 0;
  while (file) {
    const size_t before = held.size();
    held.resize(before + kPieceBytes);
    file.read(held.data() + before, kPieceBytes);
    held.resize(before + static_cast<size_t>(file.gcount()));
    std::string_view rest = held;
    for (size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
      ++number;
      const std::optional<Line> line = ParseMetricsLine(rest.substr(0, end));
      if (damaged > 0) break;
      if (line.has_value()) take(*line);
      if (!line.has_value()) damaged = number;
      offset += end + 1;
    }
    if (damaged > 0 && !rest.empty()) {
      return absl::DataLossError(
          absl::StrCat(path.string(), ": not a metrics object with a \"step\": line ", damaged));
    }
    held.erase(0, held.size() - rest.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Line>> ReadMetrics(const std::filesystem::path& path) {
  std::vector<Line> lines;
  uint64_t offset = 0;
  OXBOW_RETURN_IF_ERROR(
      ReadMetricsFrom(path, offset, [&](const Line& line) { lines.push_back(line); }));
  return lines;
}

void MetricsFollower::Take(const TakeLine& take) {
  std::error_code none;
  const uint64_t size = std::filesystem::file_size(path_, none);
  if (none || size < offset_) {
    offset_ = none ? 0 : size;
    return;
  }
  // A damaged line is passed over.
  while (absl::IsDataLoss(ReadMetricsFrom(path_, offset_, take))) {
  }
}

// A value of a step that was lost with others counts as if it were another one.
void History::Put(Values& column, Point point) {
  std::vector<Point>& points = column.points;
  const auto finite = [](double value) { return std::isfinite(value) ? value : 0; };
  column.sum += finite(point.y);
  const bool behind = points.empty() || points.back().x < point.x;
  const auto place = behind ? points.end()
                            : std::lower_bound(points.begin(), points.end(), point.x,
                                               [](const Point& a, double x) { return a.x < x; });
  if (place != points.end() && place->x == point.x) {
    column.sum -= finite(place->y);
    place->y = point.y;
    return;
  }
  // The last one was only kept because it was the last.
  const bool between = behind && column.count > 0 && (column.count - 1) % column.stride != 0;
  ++column.count;
  if (between) {
    points.back() = point;
    return;
  }
  points.insert(place, point);
  if (points.size() < 2 * kPointsMax) return;
  const Point last = points.back();
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
  column.stride *= 2;
  if (points.back().x < last.x) points.push_back(last);
}

void History::Add(const Line& line) {
  const double step = line.at(metric::kStep);
  for (const auto& [name, value] : line) Put(columns_[name], {step, value});
}

const History::Values& History::ValuesOf(const std::string& name) const {
  static const auto& none = *new Values;
  const auto column = columns_.find(name);
  return column == columns_.end() ? none : column->second;
}

double History::last_step() const {
  const std::vector<Point>& steps = Column(metric::kStep.name);
  return steps.empty() ? 0 : steps.back().x;
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

History History::Without(const std::string& prefix, double until) const {
  History rest = *this;
  for (const std::string& name : NamesWithPrefix(prefix)) {
    Values& column = rest.columns_.at(name);
    const double weight = static_cast<double>(column.stride);
    std::erase_if(column.points, [&](const Point& point) {
      if (point.x > until) return false;
      if (std::isfinite(point.y)) column.sum -= weight * point.y;
      column.count -= std::min(column.count, column.stride);
      return true;
    });
    if (column.points.empty()) rest.columns_.erase(name);
  }
  return rest;
}

std::optional<Point> History::First(const std::string& name) const {
  for (const Point& point : Column(name)) {
    if (std::isfinite(point.y)) return point;
  }
  return std::nullopt;
}

std::optional<Point> History::Last(const std::string& name) const {
  const std::vector<Point>& points = Column(name);
  const auto last = std::find_if(points.rbegin(), points.rend(),
                                 [](const Point& point) { return std::isfinite(point.y); });
  if (last == points.rend()) return std::nullopt;
  return *last;
}

}  // namespace oxbow::io
