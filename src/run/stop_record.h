// SPDX-License-Identifier: Apache-2.0
// Why a rule of run.stop_if ended a run: runs/NAME/stopped.json, {"step": 60, "reason": "..."}.
//
// The learner writes it when it ends so, and removes it when it starts again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace oxbow::run {

struct StopRecord {
  uint64_t step = 0;   // Committed learner steps.
  std::string reason;  // config::StopReason's line.
};

// The file appears whole or not at all.
absl::Status WriteStop(const std::filesystem::path& run_dir, const StopRecord& stop);
// Nothing without such a file, or if it cannot be read.
std::optional<StopRecord> ReadStop(const std::filesystem::path& run_dir);
void RemoveStop(const std::filesystem::path& run_dir);

}  // namespace oxbow::run
