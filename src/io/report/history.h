// A run's metrics as columns: for each name the values over the learner steps.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace oxbow::io {

struct Point {
  double x = 0;
  double y = 0;  // NaN: measured and broken, or not drawn.
};

class History {
 public:
  // `lines` as read from metrics.jsonl; lines of one step are merged, the later value counts.
  explicit History(const std::vector<std::map<std::string, double>>& lines);

  // The values of one metric by step, in order; empty if it was never logged.
  std::vector<Point> Column(const std::string& name) const;

  // The first of `names` that was ever logged, else the first of all. Requires a name.
  std::string FirstPresent(const std::vector<std::string>& names) const;

  std::vector<std::string> NamesWithPrefix(const std::string& prefix) const;

  // The first and last finite value; absent if there is none.
  std::optional<Point> First(const std::string& name) const;
  std::optional<Point> Last(const std::string& name) const;

  bool empty() const { return rows_.empty(); }
  double last_step() const { return rows_.empty() ? 0 : rows_.rbegin()->first; }

 private:
  std::map<double, std::map<std::string, double>> rows_;
};

}  // namespace oxbow::io
