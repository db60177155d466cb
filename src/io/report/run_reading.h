// SPDX-License-Identifier: Apache-2.0
// A run's numbers and pictures, for a reader that asks again and again while the run goes on: each
// line of metrics.jsonl and each sheet is parsed once. A metrics.jsonl that was replaced or became
// shorter, as a rollback leaves it, is read from its start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/metrics_file.h"
#include "io/report/sheets.h"

namespace oxbow::io {

class RunReading {
 public:
  explicit RunReading(std::filesystem::path run_dir) : run_dir_(std::move(run_dir)) {}

  // Takes what is new. kNotFound if the run has no metrics.jsonl, kDataLoss if that is damaged:
  // the history is then empty.
  absl::Status Update();
  // The same, without pictures.
  absl::Status UpdateHistory();

  const History& history() const { return history_; }
  const std::vector<Sheet>& sheets() const { return sheets_; }

 private:
  absl::Status TakeNewLines();

  const std::filesystem::path run_dir_;
  History history_;
  uint64_t bytes_ = 0;  // That were parsed.
  uint64_t inode_ = 0;
  SheetCache cache_;
  std::vector<Sheet> sheets_;
};

}  // namespace oxbow::io
