// SPDX-License-Identifier: Apache-2.0
// runs/NAME/starts.jsonl: one line for each start of the run by `oxbow train` or `oxbow-ray`
// (python/oxbow/cluster/start_record.py).
//
//   {"time":"2026-11-23T14:20:02Z","command":"oxbow train configs/digits.yaml","recipe":"digits",
//    "version":"0.1.0 (1c22fed0a1)","host":"box","resumed":false}
//
// A start that changed what evaluations measure has "step" and "changed" as well.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace oxbow::run {

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

}  // namespace oxbow::run
