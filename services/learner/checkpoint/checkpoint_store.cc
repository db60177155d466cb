// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_store.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "run/run_record.h"

namespace oxbow::learner {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "manifest.json";
constexpr uint64_t kManifestBytesMax = uint64_t{16} << 20;
constexpr std::string_view kPrefix = "step_";
// In the run's directory. Not beside it in a glob: who deletes checkpoint* keeps it.
constexpr char kRemembered[] = "trained_to";
constexpr size_t kRememberedBytesMax = 64;
constexpr char kTemporary[] = ".tmp";
constexpr char kDamaged[] = ".damaged";

// Whether what is there is not what was written. Other errors are the disk's.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInvalidArgument(status) || absl::IsNotFound(status);
}

// The number in "step_000025"; nothing for other names.
std::optional<uint64_t> StepsIn(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  uint64_t steps = 0;
  const bool digits =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !absl::SimpleAtoi(absl::string_view(name.data(), name.size()), &steps))
    return std::nullopt;
  return steps;
}

// The size first: a file that has become huge is not read.
absl::Status CheckFile(const fs::path& path, const FileDigest& expected) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  const bool may_fit = error || bytes == expected.bytes;  // With an error, reading it says more.
  if (may_fit) {
    OXBOW_ASSIGN_OR_RETURN(const FileDigest found, DigestOfFile(path));
    if (found == expected) return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("checkpoint file is corrupt: ", path.string()));
}

// Gives `from` the name `to` such that one of the two is there at every moment: what was called
// `to` is called `from` then. A file system that cannot exchange names loses the old `to` first.
absl::Status RenameOver(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  // Any other error says nothing about what is there, which stays.
  const bool cannot = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
  if (!cannot && errno != ENOENT) return ErrnoStatus("cannot rename", to.string(), errno);
  std::error_code ignored;
  if (cannot) fs::remove_all(to, ignored);
  if (::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus("cannot rename", to.string(), errno);
}

// One that could not be read from any disk is not written: to try again would not help.
absl::Status WriteManifest(const fs::path& directory, const CheckpointManifest& manifest) {
  const std::string text = ManifestText(manifest);
  if (const absl::Status legible = ParseManifest(text).status(); !legible.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("nobody could read it back: ", std::string(legible.message())));
  }
  return WriteFileAtomically(directory / kManifest, text);
}

// An evaluation whose weights cannot be stored is owed no more.
void GiveUpOwed(const absl::Status& why, CheckpointManifest& manifest) {
  std::vector<uint64_t>& owed = manifest.state.owed_evaluations;
  if (owed.empty()) return;
  OXBOW_LOG(Warning) << "an owed evaluation is given up: its weights cannot be stored beside the "
                        "checkpoint, which is written without them"
                     << Field("step", owed.front())
                     << Field("checkpoint", manifest.state.committed_steps) << Field("error", why);
  owed.erase(owed.begin());
}

// Writes the weights of the first owed evaluation, then the manifest. The weights make room for it:
// they may have taken what was left of the disk, and a checkpoint is worth more. Adds to `bytes`
// what was written of them.
absl::Status WriteOwedAndManifest(const fs::path& directory, const FileContent& content,
                                  CheckpointManifest manifest, uint64_t& bytes) {
  const absl::StatusOr<FileDigest> digest = WriteContent(directory / kOwedWeights, content);
  absl::Status status = digest.status();
  if (digest.ok()) {
    manifest.files[kOwedWeights] = *digest;
    status = WriteManifest(directory, manifest);
    if (status.ok()) {
      bytes += digest->bytes;
      return status;
    }
    manifest.files.erase(kOwedWeights);
    std::error_code ignored;
    fs::remove(directory / kOwedWeights, ignored);
  }
  GiveUpOwed(status, manifest);
  return WriteManifest(directory, manifest);
}

// A checkpoint that the run has had, in words; empty if nothing left of the run says that it had
// one. Rows of metrics.jsonl and steps.jsonl say nothing: steps come before the first checkpoint.
std::string HadCheckpoint(const fs::path& run_directory) {
  for (const char* file : {kRemembered, "checkpointed"}) {  // The former name.
    const auto name = ReadFile(run_directory / file, kRememberedBytesMax);
    if (name.ok()) return std::string(absl::StripAsciiWhitespace(*name));
    if (!absl::IsNotFound(name.status())) return "a checkpoint";
  }
  const auto end = run::ReadEnd(run_directory);
  const bool after_one =
      end && (end->end == run::RunEnd::kDone || end->end == run::RunEnd::kByRule ||
              end->end == run::RunEnd::kRolledBack);
  if (after_one && end->step > 0) return CheckpointName(end->step);
  std::error_code error;
  const bool weights = !fs::is_empty(run_directory / "weights", error);
  return weights && !error ? "the checkpoint of what is in weights/" : "";
}

}  // namespace

std::string CheckpointName(uint64_t committed_steps) {
  return absl::StrFormat("step_%06d", committed_steps);
}

fs::path UnfinishedCheckpoint(const fs::path& directory, uint64_t committed_steps) {
  return directory / (CheckpointName(committed_steps) + kTemporary);
}

absl::StatusOr<FileDigest> WriteContent(const fs::path& path, const FileContent& content) {
  OXBOW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  Sha256Stream hash;
  OXBOW_RETURN_IF_ERROR(content([&](std::string_view piece) {
    hash.Update(piece);
    return file.Append(piece);
  }));
  OXBOW_RETURN_IF_ERROR(file.Commit());
  const uint64_t bytes = hash.bytes();
  return FileDigest{.sha256 = hash.Hex(), .bytes = bytes};
}

void RememberCheckpoint(const fs::path& run_directory, uint64_t committed_steps) {
  const absl::Status written =
      WriteFileAtomically(run_directory / kRemembered, CheckpointName(committed_steps) + "\n");
  if (written.ok()) return;
  OXBOW_LOG(Warning) << "the checkpoint is whole, but not remembered" << Field("error", written);
}

absl::Status CheckNotLost(const fs::path& run_directory) {
  const fs::path directory = run_directory / "checkpoints";
  OXBOW_ASSIGN_OR_RETURN(const bool none, CheckpointStore(directory, 1).empty());
  const std::string name = none ? HadCheckpoint(run_directory) : "";
  if (name.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      directory.string(), " is empty, and ", name, " was there: put it back (checkpoint.copy_to), ",
      "or begin again with `oxbow train RUN.yaml --set-aside`, or from its weights with --from"));
}

CheckpointStore::CheckpointStore(fs::path directory, uint32_t keep, std::string best)
    : directory_(std::move(directory)), keep_(std::max(keep, 1u)), best_(std::move(best)) {}

absl::Status CheckpointStore::WriteFiles(const fs::path& directory, const RunState& state,
                                         const std::map<std::string, FileContent>& files,
                                         const Others& others, uint64_t& bytes) const {
  CheckpointManifest manifest{.state = state, .files = {}};
  for (const auto& [name, content] : files) {
    if (name == kOwedWeights) continue;
    OXBOW_ASSIGN_OR_RETURN(const FileDigest digest, WriteContent(directory / name, content));
    manifest.files[name] = digest;
    bytes += digest.bytes;
  }
  if (others != nullptr) {
    OXBOW_ASSIGN_OR_RETURN(const auto written, others());
    for (const auto& [name, digest] : written) {
      manifest.files[name] = digest;
      bytes += digest.bytes;
    }
  }
  // Last, so that they take no room from what the run needs.
  if (const auto owed = files.find(kOwedWeights); owed != files.end()) {
    return WriteOwedAndManifest(directory, owed->second, std::move(manifest), bytes);
  }
  return WriteManifest(directory, manifest);
}

absl::Status CheckpointStore::Prepare(uint64_t committed_steps) const {
  const fs::path temporary = UnfinishedCheckpoint(directory_, committed_steps);
  std::error_code error;
  fs::remove_all(temporary, error);
  OXBOW_RETURN_IF_ERROR(Annotate(MakeDirectories(directory_, 0), "checkpoint"));
  return Annotate(MakeDirectories(temporary, 0), "checkpoint");
}

absl::StatusOr<uint64_t> CheckpointStore::Write(const RunState& state,
                                                const std::map<std::string, FileContent>& files,
                                                const std::function<absl::Status()>& may_commit,
                                                const Others& others) const {
  const std::string name = CheckpointName(state.committed_steps);
  const fs::path temporary = UnfinishedCheckpoint(directory_, state.committed_steps);
  if (others == nullptr) OXBOW_RETURN_IF_ERROR(Prepare(state.committed_steps));
  uint64_t bytes = 0;
  std::error_code error;
  absl::Status status = WriteFiles(temporary, state, files, others, bytes);
  if (status.ok() && may_commit) status = may_commit();
  if (!status.ok()) {
    fs::remove_all(temporary, error);
    return Annotate(status, "checkpoint");
  }
  OXBOW_RETURN_IF_ERROR(RenameOver(temporary, directory_ / name));
  OXBOW_RETURN_IF_ERROR(
      Annotate(SyncDirectory(directory_), "checkpoint is there, but power loss may undo its name"));
  OXBOW_RETURN_IF_ERROR(
      Annotate(Load(state.committed_steps).status(), "checkpoint does not read back"));
  Prune(state.committed_steps);  // Before the mark, which needs room.
  NameForPeople("newest", state.committed_steps);
  return bytes;
}

// No program reads the mark. Where it cannot be written there is none: an old one would mislead.
void CheckpointStore::NameForPeople(const char* file, uint64_t committed_steps) const {
  const std::string name = CheckpointName(committed_steps);
  const absl::Status status = WriteFileAtomically(directory_ / file, name + "\n");
  if (status.ok()) return;
  std::error_code ignored;
  fs::remove(directory_ / file, ignored);
  OXBOW_LOG(Warning) << "the checkpoint is whole, but its mark for people could not be written"
                     << Field("checkpoint", name) << Field("mark", file) << Field("error", status);
}

absl::StatusOr<CheckpointManifest> CheckpointStore::ManifestOf(uint64_t committed_steps) const {
  const fs::path path = directory_ / CheckpointName(committed_steps);
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path / kManifest, kManifestBytesMax));
  absl::StatusOr<CheckpointManifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), path.string());
  if (manifest->state.committed_steps != committed_steps) {
    return absl::DataLossError(absl::StrCat("checkpoint is of another step, ",
                                            manifest->state.committed_steps, ": ", path.string()));
  }
  return manifest;
}

absl::StatusOr<Checkpoint> CheckpointStore::Load(uint64_t committed_steps) const {
  const fs::path path = directory_ / CheckpointName(committed_steps);
  OXBOW_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ManifestOf(committed_steps));
  Checkpoint checkpoint{.state = manifest.state, .directory = path, .files = {}, .damaged = {}};
  for (const auto& [name, expected] : manifest.files) {
    OXBOW_RETURN_IF_ERROR(CheckFile(path / name, expected));
    checkpoint.files.insert(name);
  }
  return checkpoint;
}

absl::StatusOr<std::vector<uint64_t>> CheckpointStore::Listed() const {
  std::vector<uint64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::optional<uint64_t> number = StepsIn(name);
    if (number.has_value() && name == CheckpointName(*number)) steps.push_back(*number);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return ErrnoStatus("cannot list checkpoints", directory_.string(), error.value());
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::StatusOr<bool> CheckpointStore::empty() const {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, Listed());
  return steps.empty();
}

absl::StatusOr<Checkpoint> CheckpointStore::LoadNewest() const {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<uint64_t> present, Listed());
  std::vector<uint64_t> damaged;
  for (const uint64_t steps : present) {
    absl::StatusOr<Checkpoint> checkpoint = Load(steps);
    if (checkpoint.ok()) {
      checkpoint->damaged = std::move(damaged);
      return checkpoint;
    }
    if (!IsDamage(checkpoint.status())) return checkpoint.status();
    damaged.push_back(steps);
    OXBOW_LOG(Warning) << "checkpoint is skipped, an older one is tried"
                       << Field("path", (directory_ / CheckpointName(steps)).string())
                       << Field("error", std::string(checkpoint.status().message()));
  }
  if (present.empty()) {
    return absl::NotFoundError(absl::StrCat("no checkpoint in ", directory_.string()));
  }
  return absl::DataLossError(
      absl::StrCat("every checkpoint is damaged (", present.size(), "): ", directory_.string(),
                   "; put copies of them back there (checkpoint.copy_to), or begin again with "
                   "`oxbow train RUN.yaml --set-aside`"));
}

absl::Status CheckpointStore::SetDamagedAside(const std::vector<uint64_t>& steps) const {
  for (const uint64_t step : steps) {
    const fs::path path = directory_ / CheckpointName(step);
    std::string aside = path.string() + kDamaged;
    std::error_code ignored;  // The rename says what is wrong.
    for (int number = 2; fs::exists(aside, ignored); ++number) {
      aside = absl::StrCat(path.string(), kDamaged, ".", number);
    }
    if (::rename(path.c_str(), aside.c_str()) != 0) {
      return ErrnoStatus("cannot rename", path.string(), errno);
    }
    OXBOW_LOG(Warning) << "damaged checkpoint is set aside" << Field("path", aside);
  }
  return steps.empty() ? absl::OkStatus() : SyncDirectory(directory_);
}

std::optional<RunState> CheckpointStore::NewestState() const {
  const absl::StatusOr<std::vector<uint64_t>> present = Listed();
  if (!present.ok()) return std::nullopt;
  for (const uint64_t steps : *present) {
    if (auto manifest = ManifestOf(steps); manifest.ok()) return std::move(manifest->state);
  }
  return std::nullopt;
}

absl::StatusOr<Checkpoint> CheckpointStore::LoadAt(uint64_t committed_steps) const {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<uint64_t> present, Listed());
  if (std::find(present.begin(), present.end(), committed_steps) == present.end()) {
    std::vector<std::string> names;
    for (const uint64_t steps : present) names.push_back(CheckpointName(steps));
    const std::string aside = CheckpointName(committed_steps) + kDamaged;
    std::error_code ignored;
    return absl::NotFoundError(absl::StrCat(
        "no checkpoint of step ", committed_steps,
        fs::exists(directory_ / aside, ignored) ? " (what is damaged of it is " + aside + ")" : "",
        "; there is ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
  }
  absl::StatusOr<Checkpoint> loaded = Load(committed_steps);
  if (loaded.ok() || !IsDamage(loaded.status())) return loaded;
  std::vector<std::string> others;
  for (const uint64_t steps : present) {
    if (steps != committed_steps) others.push_back(CheckpointName(steps));
  }
  return absl::Status(loaded.status().code(),
                      absl::StrCat(std::string(loaded.status().message()), "; ",
                                   others.empty() ? "there is no other: put a copy of it back "
                                                    "(checkpoint.copy_to)"
                                                  : "choose another: ",
                                   absl::StrJoin(others, ", ")));
}

std::optional<ScoredCheckpoint> CheckpointStore::Best(const std::string& metric) const {
  std::optional<ScoredCheckpoint> best;
  const absl::StatusOr<std::vector<uint64_t>> present = Listed();
  if (!present.ok()) return std::nullopt;
  for (const uint64_t steps : *present) {  // Newest first.
    const absl::StatusOr<CheckpointManifest> manifest = ManifestOf(steps);
    if (!manifest.ok()) continue;
    const auto found = manifest->state.evaluated.find(metric);
    if (found == manifest->state.evaluated.end()) continue;
    if (!best.has_value() || found->second >= best->value) best = {steps, found->second};
  }
  return best;
}

absl::StatusOr<Checkpoint> CheckpointStore::LoadNamed(const std::string& name,
                                                      const std::string& best) const {
  if (name == "newest") return LoadNewest();
  if (name == "best") {
    if (best.empty()) {
      return absl::NotFoundError("the run keeps no best checkpoint: its checkpoint.best is empty");
    }
    const std::optional<ScoredCheckpoint> found = Best(best);
    if (found.has_value()) return LoadAt(found->committed_steps);
    return absl::NotFoundError(absl::StrCat("no checkpoint was evaluated by ", best,
                                            ": name its step, or newest: ", directory_.string()));
  }
  uint64_t steps = 0;
  if (absl::SimpleAtoi(name, &steps)) return LoadAt(steps);
  return absl::InvalidArgumentError(
      absl::StrCat("a checkpoint is newest, best or a number of steps, got ", name));
}

absl::StatusOr<RunState> CheckpointStore::RollBack(uint64_t committed_steps) const {
  OXBOW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, LoadAt(committed_steps));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<uint64_t> present, Listed());
  for (const uint64_t steps : present) {  // Newest first: a crash leaves a gapless history.
    if (steps == committed_steps) break;
    std::string aside = CheckpointName(steps);
    const fs::path path = directory_ / aside;
    aside.replace(0, kPrefix.size(), "rolled_back_");
    std::error_code error;
    fs::remove_all(directory_ / aside, error);
    fs::rename(path, directory_ / aside, error);
    if (error) {
      return absl::InternalError(
          absl::StrCat("cannot rename: ", error.message(), ": ", path.string()));
    }
  }
  OXBOW_RETURN_IF_ERROR(SyncDirectory(directory_));
  NameForPeople("newest", committed_steps);
  return checkpoint.state;
}

// Files of writes that did not come to an end go, too. Newer checkpoints stay: in a second place
// they may be all that is left of a run.
void CheckpointStore::Prune(uint64_t written) const {
  const absl::StatusOr<std::vector<uint64_t>> listed = Listed();
  if (!listed.ok()) return;
  std::optional<ScoredCheckpoint> best;
  if (!best_.empty()) best = Best(best_);
  uint32_t kept = 0;
  for (const uint64_t steps : *listed) {
    if (steps > written || ++kept <= keep_) continue;
    if (best.has_value() && steps == best->committed_steps) continue;
    // One that cannot be read at this moment may be the best.
    const absl::Status manifest = best_.empty() ? absl::OkStatus() : ManifestOf(steps).status();
    if (!manifest.ok() && !IsDamage(manifest)) continue;
    std::error_code error;
    fs::remove_all(directory_ / CheckpointName(steps), error);
  }
  std::vector<fs::path> unfinished;
  std::error_code error;
  for (fs::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == kTemporary && StepsIn(path.stem().string())) unfinished.push_back(path);
  }
  for (const fs::path& path : unfinished) fs::remove_all(path, error);
  SweepTemporaries(directory_);
  if (best.has_value()) NameForPeople("best", best->committed_steps);
}

}  // namespace oxbow::learner
