// SPDX-License-Identifier: Apache-2.0
// Enters a run's directory for one start of `oxbow train`: takes its locks, checks what is there,
// and makes room. A start that is refused has changed nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/fingerprint.h"
#include "config/run_config.h"
#include "run/run_lock.h"

namespace oxbow::cli {

// The fate of an earlier run of the same name.
enum class EarlierRun {
  kRefuse,  // Deleted if it failed before its first step and left nothing but logs.
  kResume,
  kOverwrite,  // Deleted.
  kSetAside,   // Renamed to NAME.1, or the next number that is free.
};

// Whether the directory holds more than locks of a start that made nothing.
bool HasRun(const std::filesystem::path& run_dir);

struct EnteredDirectory {
  run::RunLock lock;  // For as long as this process may change the directory.
  std::string said;   // The fate of the earlier run, in one line; empty: nothing.
  uint64_t step = 0;  // That of the newest checkpoint of a run that is resumed.
  // The keys that change what evaluations measure from there on.
  std::vector<config::ChangedKey> changed = {};
};

// Returns with config.resolved.yaml written and logs/ made. `prepare` is called before that, with
// the directory there and locked; its error is returned. kUnavailable (exit code 3) if the run
// is live, naming the process; kInvalidArgument (2) if the run exists and `earlier` does not say
// what to do with it, the directory has no checkpoint and checkpoint.copy_to has, or CheckResume
// refuses; kNotFound (4) if there is no run to resume.
absl::StatusOr<EnteredDirectory> EnterRunDirectory(
    const std::filesystem::path& run_dir, EarlierRun earlier,
    const config::ResolvedConfig& resolved, const std::function<absl::Status()>& prepare = {});

// Takes model.memory as an earlier start of the run has chosen it, where `resolved` is to choose.
void KeepMemory(const std::filesystem::path& run_dir, config::ResolvedConfig& resolved);

}  // namespace oxbow::cli
