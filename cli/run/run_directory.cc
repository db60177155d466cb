// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_directory.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "config/file_paths.h"
#include "config/memory_parts.h"
#include "io/diffusers_directory.h"
#include "io/model_digest.h"
#include "run/prompt_files.h"
#include "run/run_record.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "services/learner/checkpoint/checkpoint_writer.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;
using run::RunLock;

constexpr char kProgram[] = "oxbow train";
using config::kResolvedConfig;
// A learner ends soon after the `oxbow train` that started it, not at the same moment.
constexpr absl::Duration kLearnerEnds = absl::Seconds(5);

absl::Status CannotPrepare(const fs::path& run_dir, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(
      "cannot prepare the run's directory: ", error.message(), ": ", run_dir.string()));
}

// Whether a start failed before its first step and left no more than its words: no measurement, no
// picture, no weights, nothing of anybody else.
bool LeftNothing(const fs::path& run_dir) {
  const auto end = run::ReadEnd(run_dir);
  if (!end.has_value() || end->end != run::RunEnd::kFailed || end->step > 0) return false;
  static const std::set<std::string>& words = *new std::set<std::string>{
      kResolvedConfig, "ended.json", "endpoints.json", "epoch",   config::kLentFolder,
      "logs",          "replay",     "report.html",    "run_uid", "starts.jsonl"};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    const std::string name = entry.path().filename().string();
    const bool known = words.contains(name) || run::IsLockFile(name) ||
                       absl::StartsWith(name, "events.out.tfevents.");
    if (!known && !fs::is_empty(entry.path(), error)) return false;
  }
  return !error;
}

absl::Status CheckEarlier(const fs::path& run_dir, EarlierRun earlier) {
  const bool used = HasRun(run_dir);
  switch (earlier) {
    case EarlierRun::kResume:
      if (used) return absl::OkStatus();
      return absl::NotFoundError(absl::StrCat("no run to resume: ", run_dir.string()));
    case EarlierRun::kRefuse:
      if (!used || LeftNothing(run_dir)) return absl::OkStatus();
      if (run::IsLive(run_dir)) {  // Says who has it.
        OXBOW_RETURN_IF_ERROR(RunLock::Take(run_dir, {.program = kProgram}).status());
      }
      return absl::InvalidArgumentError(
          absl::StrCat("the run exists; continue it with --resume, rename it with --set-aside, "
                       "replace it with --overwrite, or choose --name: ",
                       run_dir.string()));
    default:
      if (!used || fs::exists(run_dir / kResolvedConfig)) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("not a run's directory, so it is not touched: ", run_dir.string()));
  }
}

learner::CheckpointStore StoreOf(const fs::path& run_dir) {
  return learner::CheckpointStore(run_dir / "checkpoints", /*keep=*/1);
}

// The steps of the newest checkpoint, whole or damaged; nothing if there is none.
std::optional<uint64_t> StepsDone(const fs::path& run_dir) {
  const auto steps = StoreOf(run_dir).Listed();
  return steps.ok() && !steps->empty() ? std::optional(steps->front()) : std::nullopt;
}

// A run without a checkpoint whose copies are elsewhere has lost its disk.
absl::Status CheckCopies(const fs::path& run_dir, EarlierRun earlier, const v1::RunConfig& config) {
  const bool begins_anyhow = earlier == EarlierRun::kOverwrite || earlier == EarlierRun::kSetAside;
  if (begins_anyhow || StepsDone(run_dir).has_value()) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const config::CopyTarget target,
                         config::ParseCopyTarget(config.checkpoint().copy_to()));
  return learner::CheckNoCopies(run_dir, config.run().name(), target);
}

absl::Status Delete(const fs::path& run_dir) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    if (!run::IsLockFile(entry.path().filename())) entries.push_back(entry.path());
  }
  // Last what says that this is a run: a deletion that was cut short can be started again.
  std::stable_partition(entries.begin(), entries.end(),
                        [](const fs::path& path) { return path.filename() != kResolvedConfig; });
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
      "\nonly these may change over --resume: ", absl::StrJoin(config::FreeKeys(), ", "),
      "; model.path and prompts.train to the same content elsewhere"));
}

// The content of a model at another path; the learner compares that at the same path.
absl::Status CheckModel(const v1::RunConfig& before, const v1::RunConfig& now,
                        const learner::RunState& state) {
  const std::string& path = now.model().path();
  if (before.model().path() == path) return absl::OkStatus();
  const std::string paths =
      absl::StrCat("model.path: ", before.model().path(), " in the run, ", path, " here");
  if (state.model_sha256.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths,
                     ": its checkpoints are of an older version and do not say which model "
                     "they are of: resume once with the former path"));
  }
  OXBOW_ASSIGN_OR_RETURN(const auto components, io::OpenDiffusersDirectory(path));
  OXBOW_ASSIGN_OR_RETURN(const auto digests, io::ModelDigests(components));
  for (const auto& [component, digest] : digests) {
    const auto known = state.model_sha256.find(component);
    if (known == state.model_sha256.end() || known->second == digest) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(paths, ", which is another model: its ", component, " differs"));
  }
  return absl::OkStatus();
}

absl::Status CheckPrompts(const v1::RunConfig& now, const learner::RunState& state) {
  const auto known = state.prompts_sha256.find("prompts.train");
  if (known == state.prompts_sha256.end()) return absl::OkStatus();
  const std::string& file = now.prompts().train();
  OXBOW_ASSIGN_OR_RETURN(const auto prompts, run::ReadPrompts(file, run::PromptSplit::kTrain));
  if (run::DigestOfPrompts(prompts) == known->second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "prompts.train has other prompts than the run was trained on: bring the file back, or "
      "choose --name for a new run: ",
      file));
}

// The keys that change what evaluations measure. Held-out prompts count by their content.
std::vector<config::ChangedKey> ChangedMeasures(const v1::RunConfig& before,
                                                const v1::RunConfig& now,
                                                const learner::RunState& state) {
  std::vector<config::ChangedKey> changed = config::ChangedMeasures(before, now);
  constexpr char kKey[] = "prompts.eval";
  const auto known = state.prompts_sha256.find(kKey);
  const auto prompts = run::ReadPrompts(now.prompts().eval(), run::PromptSplit::kHeldOut);
  if (known == state.prompts_sha256.end() || !prompts.ok()) return changed;
  std::erase_if(changed, [&](const config::ChangedKey& one) { return one.key == kKey; });
  if (run::DigestOfPrompts(*prompts) != known->second) {
    changed.insert(changed.begin(), {kKey, before.prompts().eval(), now.prompts().eval()});
  }
  return changed;
}

struct Resumption {
  uint64_t step = 0;
  std::vector<config::ChangedKey> changed;
};

Resumption ResumptionOf(const fs::path& run_dir, const v1::RunConfig& now) {
  const auto before = config::LoadResolved(run_dir / kResolvedConfig);
  const auto state = StoreOf(run_dir).NewestState();
  if (!state || !before.ok()) return {};
  return {.step = state->committed_steps, .changed = ChangedMeasures(*before, now, *state)};
}

// Keeps the settings by which checkpoints of older versions are known: name and place of the run.
absl::Status KeepFormer(const fs::path& run_dir, const v1::RunConfig& now) {
  using config::FingerprintAge, config::FingerprintOf;
  std::error_code ignored;
  const auto state = StoreOf(run_dir).NewestState();
  const auto before = config::LoadResolved(run_dir / kResolvedConfig);
  const bool kept = fs::exists(run_dir / config::kFormerConfig, ignored);
  if (kept || !state || !state->model_sha256.empty() || !before.ok()) return absl::OkStatus();
  if (FingerprintOf(*before, FingerprintAge::kFormer) ==
      FingerprintOf(now, FingerprintAge::kFormer)) {
    return absl::OkStatus();
  }
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(run_dir / kResolvedConfig));
  return WriteFileAtomically(run_dir / config::kFormerConfig, text);
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

// Whether a run may go on with other settings. kInvalidArgument names each setting that must not
// change and did, with both values and the source of the new one; or a model or training prompts
// that are others than the checkpoint's, wherever they lie; or says that more steps are done than
// run.steps. A run that never had a checkpoint starts over and may change all; kDataLoss (exit code
// 4) if it has lost them.
absl::Status CheckResume(const fs::path& run_dir, const config::ResolvedConfig& resolved) {
  const std::optional<uint64_t> done = StepsDone(run_dir);
  if (!done.has_value()) return learner::CheckNotLost(run_dir);
  // Without the file the learner still compares the fingerprint, and names no key.
  if (const auto before = config::LoadResolved(run_dir / kResolvedConfig); before.ok()) {
    const auto changed = config::ChangedKeys(*before, resolved.config);
    if (!changed.empty()) return ChangedSettings(changed, resolved.provenance);
    if (const auto state = StoreOf(run_dir).NewestState()) {
      OXBOW_RETURN_IF_ERROR(CheckModel(*before, resolved.config, *state));
      OXBOW_RETURN_IF_ERROR(CheckPrompts(resolved.config, *state));
    }
  }
  if (resolved.config.run().steps() >= *done) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the run has ", *done, " steps already: raise run.steps, or go back with `oxbow rollback`; ",
      "run.steps is ", resolved.config.run().steps(), " (",
      SourceOf(resolved.provenance, "run.steps"), ")"));
}

}  // namespace

bool HasRun(const fs::path& run_dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir, error)) {
    if (!run::IsLockFile(entry.path().filename())) return true;
  }
  return false;
}

void KeepMemory(const fs::path& run_dir, config::ResolvedConfig& resolved) {
  if (!resolved.chosen_memory) return;
  const auto before = config::LoadResolved(run_dir / kResolvedConfig);
  if (!before.ok() || before->model().memory() == config::kMemoryAuto) return;
  resolved.config.mutable_model()->set_memory(before->model().memory());
  resolved.provenance["model.memory"] = "an earlier start of the run";
  resolved.chosen_memory = false;
}

absl::StatusOr<EnteredDirectory> EnterRunDirectory(const fs::path& run_dir, EarlierRun earlier,
                                                   const config::ResolvedConfig& resolved,
                                                   const std::function<absl::Status()>& prepare) {
  // Before the locks, because they would leave files in a directory that is none of ours.
  if (earlier == EarlierRun::kResume || !HasRun(run_dir) || LeftNothing(run_dir)) {
    OXBOW_RETURN_IF_ERROR(CheckCopies(run_dir, earlier, resolved.config));
  }
  OXBOW_RETURN_IF_ERROR(CheckEarlier(run_dir, earlier));
  OXBOW_ASSIGN_OR_RETURN(Locks locks, TakeLocks(run_dir));
  OXBOW_RETURN_IF_ERROR(CheckEarlier(run_dir, earlier));
  std::string said;
  Resumption resumption;
  if (earlier == EarlierRun::kResume) {
    OXBOW_RETURN_IF_ERROR(CheckResume(run_dir, resolved));
    resumption = ResumptionOf(run_dir, resolved.config);
  }
  if (earlier == EarlierRun::kRefuse && HasRun(run_dir)) {
    OXBOW_RETURN_IF_ERROR(Delete(run_dir));
    said = absl::StrCat("begins again in ", run_dir.string(),
                        ": the start before failed before its first step");
  }
  if (earlier == EarlierRun::kOverwrite && HasRun(run_dir)) {
    OXBOW_RETURN_IF_ERROR(Delete(run_dir));
    said = absl::StrCat("deleted the earlier run: ", run_dir.string());
  }
  if (earlier == EarlierRun::kSetAside && HasRun(run_dir)) {
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
  if (earlier == EarlierRun::kResume) OXBOW_RETURN_IF_ERROR(KeepFormer(run_dir, resolved.config));
  OXBOW_RETURN_IF_ERROR(config::WriteResolved(resolved, run_dir / kResolvedConfig));
  return EnteredDirectory{.lock = std::move(locks.run),
                          .said = std::move(said),
                          .step = resumption.step,
                          .changed = std::move(resumption.changed)};
}

}  // namespace oxbow::cli
