// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_directory.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "config/changed_keys.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;
using run::RunLock;

constexpr char kProgram[] = "oxbow train";
constexpr char kConfig[] = "config.resolved.yaml";
// A learner ends soon after the `oxbow train` that started it, not at the same moment.
constexpr absl::Duration kLearnerEnds = absl::Seconds(5);

// Whether there is more than locks.
bool IsUsed(const fs::path& run_dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    if (!run::IsLockFile(entry.path().filename())) return true;
  }
  return false;
}

absl::Status CannotPrepare(const fs::path& run_dir, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(
      "cannot prepare the run's directory: ", error.message(), ": ", run_dir.string()));
}

absl::Status CheckEarlier(const fs::path& run_dir, EarlierRun earlier) {
  const bool used = IsUsed(run_dir);
  switch (earlier) {
    case EarlierRun::kResume:
      if (used) return absl::OkStatus();
      return absl::NotFoundError(absl::StrCat("no run to resume: ", run_dir.string()));
    case EarlierRun::kRefuse:
      if (!used) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("the run exists; continue it with --resume, rename it with --set-aside, "
                       "replace it with --overwrite, or choose --name: ",
                       run_dir.string()));
    default:
      if (!used || fs::exists(run_dir / kConfig)) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("not a run's directory, so it is not touched: ", run_dir.string()));
  }
}

absl::Status Delete(const fs::path& run_dir) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    if (!run::IsLockFile(entry.path().filename())) entries.push_back(entry.path());
  }
  // Last what says that this is a run: a deletion that was cut short can be started again.
  std::stable_partition(entries.begin(), entries.end(),
                        [](const fs::path& path) { return path.filename() != kConfig; });
  for (const fs::path& entry : entries) {
    if (!error) fs::remove_all(entry, error);
  }
  return error ? CannotPrepare(run_dir, error) : absl::OkStatus();
}

absl::StatusOr<fs::path> SetAside(const fs::path& run_dir) {
  fs::path aside;
  for (int number = 1; aside.empty() || fs::exists(aside); ++number) {
    aside = absl::StrCat(run_dir.string(), ".", number);
  }
  std::error_code error;
  fs::rename(run_dir, aside, error);
  if (error) return CannotPrepare(run_dir, error);
  return aside;
}

// The steps of the newest checkpoint, whole or damaged; nothing if there is none.
std::optional<uint64_t> StepsDone(const fs::path& run_dir) {
  std::optional<uint64_t> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    uint64_t step = 0;
    if (!absl::StartsWith(name, "step_") || !absl::SimpleAtoi(name.substr(5), &step)) continue;
    newest = std::max(newest.value_or(0), step);
  }
  return newest;
}

std::string SourceOf(const config::Provenance& provenance, const std::string& key) {
  const auto found = provenance.find(key);
  return found == provenance.end() ? config::kDefaultSource : found->second;
}

absl::Status ChangedSettings(const std::vector<config::ChangedKey>& changed,
                             const config::Provenance& provenance) {
  std::vector<std::string> lines;
  for (const config::ChangedKey& key : changed) {
    lines.push_back(absl::StrCat(key.key, ": ", key.before, " in the run, ", key.now, " here (",
                                 SourceOf(provenance, key.key), ")"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a run goes on with the settings of its checkpoint: take back what differs, or "
      "choose --name for a new run\n  ",
      absl::StrJoin(lines, "\n  "),
      "\nonly these may change over --resume: ", absl::StrJoin(config::FreeKeys(), ", ")));
}

// Both locks; that of the learner is free for the learner once this start has been prepared.
struct Locks {
  RunLock run;
  RunLock learner;
};

absl::StatusOr<Locks> TakeLocks(const fs::path& run_dir) {
  if (const absl::Status made = MakeDirectories(run_dir); !made.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot prepare the run's directory: ", std::string(made.message())));
  }
  OXBOW_ASSIGN_OR_RETURN(RunLock run, RunLock::Take(run_dir, {.program = kProgram}));
  OXBOW_ASSIGN_OR_RETURN(RunLock learner, RunLock::Take(run_dir, {.part = RunLock::Part::kLearner,
                                                                  .program = kProgram,
                                                                  .wait = kLearnerEnds}));
  return Locks{std::move(run), std::move(learner)};
}

}  // namespace

absl::Status CheckResume(const fs::path& run_dir, const config::ResolvedConfig& resolved) {
  const std::optional<uint64_t> done = StepsDone(run_dir);
  if (!done.has_value()) return absl::OkStatus();
  // Without the file the learner still compares the fingerprint, and names no key.
  if (const auto before = config::LoadResolved(run_dir / kConfig); before.ok()) {
    const auto changed = config::ChangedKeys(*before, resolved.config);
    if (!changed.empty()) return ChangedSettings(changed, resolved.provenance);
  }
  if (resolved.config.run().steps() >= *done) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the run has ", *done, " steps already: raise run.steps, or go back with `oxbow rollback`; ",
      "run.steps is ", resolved.config.run().steps(), " (",
      SourceOf(resolved.provenance, "run.steps"), ")"));
}

absl::StatusOr<EnteredDirectory> EnterRunDirectory(const fs::path& run_dir, EarlierRun earlier,
                                                   const config::ResolvedConfig& resolved,
                                                   const std::function<absl::Status()>& prepare) {
  // Before the locks, because they would leave files in a directory that is none of ours.
  OXBOW_RETURN_IF_ERROR(CheckEarlier(run_dir, earlier));
  OXBOW_ASSIGN_OR_RETURN(Locks locks, TakeLocks(run_dir));
  OXBOW_RETURN_IF_ERROR(CheckEarlier(run_dir, earlier));
  std::string said;
  if (earlier == EarlierRun::kResume) OXBOW_RETURN_IF_ERROR(CheckResume(run_dir, resolved));
  if (earlier == EarlierRun::kOverwrite && IsUsed(run_dir)) {
    OXBOW_RETURN_IF_ERROR(Delete(run_dir));
    said = absl::StrCat("deleted the earlier run: ", run_dir.string());
  }
  if (earlier == EarlierRun::kSetAside && IsUsed(run_dir)) {
    OXBOW_ASSIGN_OR_RETURN(const fs::path aside, SetAside(run_dir));
    said = absl::StrCat("the earlier run is now ", aside.string());
    OXBOW_ASSIGN_OR_RETURN(locks, TakeLocks(run_dir));
    OXBOW_RETURN_IF_ERROR(CheckEarlier(run_dir, EarlierRun::kRefuse));
  }
  std::error_code error;
  fs::create_directories(run_dir / "logs", error);
  if (error) return CannotPrepare(run_dir, error);
  OXBOW_RETURN_IF_ERROR(locks.run.CheckHeld());
  if (prepare) OXBOW_RETURN_IF_ERROR(prepare());
  OXBOW_RETURN_IF_ERROR(config::WriteResolved(resolved, run_dir / kConfig));
  return EnteredDirectory{std::move(locks.run), std::move(said)};
}

}  // namespace oxbow::cli
