// SPDX-License-Identifier: Apache-2.0
// Why a run ended: runs/NAME/ended.json.
//
//   {"time":"2026-11-23T14:20:02Z","state":"failed","step":11,"exit_code":5,
//    "reason":"No space left on device: runs/full/metrics.jsonl (learner ended with exit code 5)"}
//
// A start makes room for the record: a file of blanks. The record is written into that room, so it
// needs no space of a disk that is full. It is still blank when the run was killed.
//
// The learner writes the record when it ends, and `oxbow train` once more when its processes have
// ended, because it knows how they did. Runs of older versions have stopped.json instead, for a
// rule of run.stop_if alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace oxbow::run {

enum class RunEnd {
  kDone,         // All steps are done.
  kByRule,       // A rule of run.stop_if.
  kInterrupted,  // A stop signal, or a request to drain.
  kFailed,
  kRolledBack,  // `oxbow rollback`, after an end of another kind.
  kUnsaid,      // Nobody wrote why. It may run on where file systems have no locks.
};

// "done", "by rule", "interrupted", "failed", "rolled back", "stopped".
const char* WordOf(RunEnd end);

struct EndRecord {
  RunEnd end = RunEnd::kUnsaid;
  uint64_t step = 0;  // Committed learner steps.
  int exit_code = 0;
  std::string reason;  // One line: a rule, or the words of what failed.
  absl::Time time = absl::InfinitePast();

  bool operator==(const EndRecord&) const = default;
};

// The reason in a few words, for a table: "disk full", "port taken", else its beginning.
std::string CauseOf(const EndRecord& record);

// How the part of a reason begins that says why the last checkpoint was not copied.
inline constexpr char kUncopied[] = "the last checkpoint is not at checkpoint.copy_to: ";
// That part; empty: it was copied, or nobody asked for that.
std::string UncopiedOf(const EndRecord& record);

// "failed at step 11: No space left on device: ... (exit code 5)".
std::string EndText(const EndRecord& record);

// Forgets how the start before ended, and makes room for a record.
absl::Status ReserveEnd(const std::filesystem::path& run_dir);
absl::Status WriteEnd(const std::filesystem::path& run_dir, const EndRecord& record);

// Nothing without a file, or if it holds anything else. Of a run that is live it says nothing.
std::optional<EndRecord> ReadEnd(const std::filesystem::path& run_dir);

}  // namespace oxbow::run
