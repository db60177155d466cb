// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object per line and learner step, flat, every value a number or null. The
// keys are those of metrics/step_metrics.h.
//
//   {"step":12,"time/wall_s":3.25,"buffer/size":96,"eval/reward_mean":0.71,"train/loss":null}
//
// Numbers are the shortest decimals that read back as the same double. JSON has no NaN and no
// infinity: they are null. The key stays, so that a reader sees that the value was measured and
// broken. Several lines may have the same step with other keys; readers merge them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::io {

inline constexpr char kMetricsFile[] = "metrics.jsonl";

// Formats one line with its newline: the step, the wall time, then the metrics in order of name.
// "step" and "time/wall_s" in `metrics` are ignored.
std::string FormatMetricsLine(int64_t step, double wall_seconds,
                              const std::map<std::string, double>& metrics);

// Parses a line: null reads as NaN, values that are not numbers are left out. Absent if it is not a
// JSON object with a finite "step".
std::optional<std::map<std::string, double>> ParseMetricsLine(std::string_view text);

// Reads a file's lines. A last one that is cut short, as a crash leaves it, is ignored. kNotFound
// if there is no such file; kDataLoss with the line number if any other line is none
// (ParseMetricsLine).
absl::StatusOr<std::vector<std::map<std::string, double>>> ReadMetrics(
    const std::filesystem::path& path);

// Gives `take` the whole lines from byte `offset` on, one after another, and moves `offset` behind
// them. Holds a piece of the file at a time. Errors as ReadMetrics; lines are counted from
// `offset`.
using TakeLine = std::function<void(const std::map<std::string, double>& line)>;
absl::Status ReadMetricsFrom(const std::filesystem::path& path, uint64_t& offset,
                             const TakeLine& take);

// Reads the lines that are appended to a growing file, each once.
class MetricsFollower {
 public:
  explicit MetricsFollower(std::filesystem::path path) : path_(std::move(path)) {}

  // Gives `take` the whole lines since the last call; none while there is no file. A file that
  // became shorter, as a resume leaves it, is followed from its new end.
  void Take(const TakeLine& take);

 private:
  const std::filesystem::path path_;
  uint64_t offset_ = 0;
};

struct Point {
  double x = 0;
  double y = 0;  // NaN: measured and broken, or not drawn.
};

// A run's metrics as columns: for each name the values over the learner steps. A column of twice
// kPointsMax points loses every second one, evenly from the first to the last, so that memory does
// not grow with a run of any length.
class History {
 public:
  static constexpr size_t kPointsMax = 4096;

  // `lines` as read from metrics.jsonl; lines of one step are merged, the later value counts.
  explicit History(const std::vector<std::map<std::string, double>>& lines = {}) { Add(lines); }

  // Takes a line that was appended to the file.
  void Add(const std::map<std::string, double>& line);
  void Add(const std::vector<std::map<std::string, double>>& lines) {
    for (const auto& line : lines) Add(line);
  }

  // The values of one metric by step, in order; empty if it was never logged.
  const std::vector<Point>& Column(const std::string& name) const { return ValuesOf(name).points; }

  // How many values were logged, and their sum where they are finite: without those lost.
  size_t Count(const std::string& name) const { return ValuesOf(name).count; }
  double Sum(const std::string& name) const { return ValuesOf(name).sum; }
  // How many logged values one of the column stands for; 1 while it has all.
  double Weight(const std::string& name) const {
    return static_cast<double>(ValuesOf(name).stride);
  }

  // The first of `names` that was ever logged, else the first of all. Requires a name.
  std::string FirstPresent(const std::vector<std::string>& names) const;

  std::vector<std::string> NamesWithPrefix(const std::string& prefix) const;

  // The first and last finite value; absent if there is none.
  std::optional<Point> First(const std::string& name) const;
  std::optional<Point> Last(const std::string& name) const;

  // The same without the values up to step `until` of metrics whose names begin with `prefix`.
  History Without(const std::string& prefix, double until) const;

  bool empty() const { return columns_.empty(); }
  double last_step() const;

 private:
  struct Values {
    std::vector<Point> points;  // By step.
    size_t stride = 1;          // One of so many values stays; the last one, too.
    size_t count = 0;
    double sum = 0;
  };
  static void Put(Values& column, Point point);
  const Values& ValuesOf(const std::string& name) const;  // Without any of a name never logged.

  std::map<std::string, Values> columns_;
};

}  // namespace oxbow::io
