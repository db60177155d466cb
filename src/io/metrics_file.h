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

// Parses a file's content, one map per line with "step" among its keys; null reads as NaN, values
// that are not numbers are left out. A last line that is cut short, as a crash leaves it, is
// ignored. kDataLoss with the line number if any other line is not a JSON object with a "step".
absl::StatusOr<std::vector<std::map<std::string, double>>> ParseMetrics(std::string_view content);

// kNotFound if there is no such file; else as ParseMetrics.
absl::StatusOr<std::vector<std::map<std::string, double>>> ReadMetrics(
    const std::filesystem::path& path);

// Parses one line, as ParseMetrics. Absent if it is not a JSON object with a finite "step".
std::optional<std::map<std::string, double>> ParseMetricsLine(std::string_view text);

// Reads the lines that are appended to a growing file, each once.
class MetricsFollower {
 public:
  explicit MetricsFollower(std::filesystem::path path) : path_(std::move(path)) {}

  // Whole lines since the last call; none while there is no file. A file that became shorter, as a
  // resume leaves it, is followed from its new end.
  std::vector<std::map<std::string, double>> Take();

 private:
  const std::filesystem::path path_;
  uint64_t offset_ = 0;
};

struct Point {
  double x = 0;
  double y = 0;  // NaN: measured and broken, or not drawn.
};

// A run's metrics as columns: for each name the values over the learner steps.
class History {
 public:
  // `lines` as read from metrics.jsonl; lines of one step are merged, the later value counts.
  explicit History(const std::vector<std::map<std::string, double>>& lines = {}) { Add(lines); }

  // Takes lines that were appended to the file.
  void Add(const std::vector<std::map<std::string, double>>& lines);

  // The values of one metric by step, in order; empty if it was never logged.
  std::vector<Point> Column(const std::string& name) const;

  // The first of `names` that was ever logged, else the first of all. Requires a name.
  std::string FirstPresent(const std::vector<std::string>& names) const;

  std::vector<std::string> NamesWithPrefix(const std::string& prefix) const;

  // The first and last finite value; absent if there is none.
  std::optional<Point> First(const std::string& name) const;
  std::optional<Point> Last(const std::string& name) const;

  bool empty() const { return columns_.empty(); }
  double last_step() const;

 private:
  std::map<std::string, std::vector<Point>> columns_;  // Each by step, none empty.
};

}  // namespace oxbow::io
