// SPDX-License-Identifier: Apache-2.0
// Small records in a run's directory: how it was started, why it ended, and which run it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::run {

// runs/NAME/starts.jsonl: one line for each start of the run by `oxbow train` or `oxbow-ray`
// (python/oxbow/cluster/start_record.py).
//
//   {"time":"2026-11-23T14:20:02Z","command":"oxbow train configs/digits.yaml","recipe":"digits",
//    "version":"0.1.0 (1c22fed0a1)","host":"box","resumed":false}
//
// A start that changed what evaluations measure has "step" and "changed" as well.
struct StartRecord {
  absl::Time time;
  std::string command;  // As typed, quoted where a shell needs it.
  std::string recipe;   // Empty: none.
  std::string version;  // That of oxbow, with its commit.
  std::string host;
  bool resumed = false;
  uint64_t step = 0;                      // That of the checkpoint that a resumed run goes on from.
  std::vector<std::string> changed = {};  // "reward.observed: [] -> [brightness]"
};

// A word as a shell takes it: in quotes where it needs them.
std::string Quoted(const std::string& word);

// The command that this process was started by.
std::string ThisCommand();

// The command that goes on with the run in `run_dir`, wherever it lies: `oxbow resume RUN_DIR` with
// the addresses and certificates of `command`, which has started it. A run of another program goes
// on by that: without what says how a new run begins, and with --resume.
std::string CommandToGoOn(const std::string& command, const std::filesystem::path& run_dir);

absl::Status AppendStart(const std::filesystem::path& run_dir, const StartRecord& start);

// All starts, oldest first; none for a run that was started by hand. Lines that are damaged are
// left out: nothing depends on them.
std::vector<StartRecord> ReadStarts(const std::filesystem::path& run_dir);

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

// The uid of a run: which run it is, whatever its name and wherever its directory lies.
//
// runs/NAME/run_uid holds "NAME-" and 16 random hex digits. It is made once, by the first start of
// the run's learner, and goes where the directory goes. Checkpoints say it, too: a run that goes on
// from one is that run, wherever the checkpoint was kept. A directory that was deleted and made
// again is another run.
//
// The uid in the run's directory. kNotFound if there is none yet, kDataLoss if the file holds none.
absl::StatusOr<std::string> ReadRunUid(const std::filesystem::path& run_directory);

// The uid `known`, that of the run's checkpoint; without one that in the directory, or a new one.
// The directory then has it, durably. Errors as ReadRunUid.
absl::StatusOr<std::string> RunUidOf(const std::filesystem::path& run_directory,
                                     const std::string& run_name, const std::string& known = "");

// Whether a run of this name may have the uid.
bool IsUidOf(const std::string& run_name, const std::string& uid);

}  // namespace oxbow::run
