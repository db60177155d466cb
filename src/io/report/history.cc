#include "io/report/history.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "io/metrics_file.h"
#include "metrics/step_metrics.h"

namespace oxbow::io {

History::History(const std::vector<std::map<std::string, double>>& lines) {
  for (const auto& line : lines) {
    for (const auto& [name, value] : line) rows_[line.at(metric::kStep)][name] = value;
  }
}

std::vector<Point> History::Column(const std::string& name) const {
  std::vector<Point> points;
  for (const auto& [step, row] : rows_) {
    if (const auto value = row.find(name); value != row.end())
      points.push_back({step, value->second});
  }
  return points;
}

std::string History::FirstPresent(const std::vector<std::string>& names) const {
  OXBOW_CHECK(!names.empty()) << "no metric to look for";
  for (const std::string& name : names) {
    if (!Column(name).empty()) return name;
  }
  return names.front();
}

std::vector<std::string> History::NamesWithPrefix(const std::string& prefix) const {
  std::set<std::string> names;
  for (const auto& [step, row] : rows_) {
    for (const auto& [name, value] : row) {
      if (name.starts_with(prefix)) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

std::optional<Point> History::First(const std::string& name) const {
  for (const Point& point : Column(name)) {
    if (std::isfinite(point.y)) return point;
  }
  return std::nullopt;
}

std::optional<Point> History::Last(const std::string& name) const {
  std::vector<Point> points = Column(name);
  std::reverse(points.begin(), points.end());
  for (const Point& point : points) {
    if (std::isfinite(point.y)) return point;
  }
  return std::nullopt;
}

}  // namespace oxbow::io
