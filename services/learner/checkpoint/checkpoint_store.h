// SPDX-License-Identifier: Apache-2.0
// Step-atomic checkpoints on disk: a directory appears complete or not at all, and is loaded only
// if every hash matches. Files of any size: none is held in memory.
//
//   checkpoints/step_000025/   FILE...           as given
//                              manifest.json     checkpoint_manifest.h
//
// Files are written to step_000025.tmp and fsynced, the directory is renamed (if a checkpoint of
// that step exists, the two exchange their names), and the new checkpoint is read back. Only then
// are older checkpoints deleted, and what else ends in .tmp. Newer ones never are.
//
// A damaged checkpoint has a file or manifest that is missing or not what was written. A disk that
// cannot be read says nothing of what is on it: that error is returned, and no other checkpoint is
// taken for it. A run that goes on without damaged ones keeps them as step_000025.damaged.
//
// A checkpoint says in its manifest what the evaluation of its weights measured, so which one is
// the best follows from the checkpoints themselves: no mark can be missing or name another one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"

namespace oxbow::learner {

// Takes the next piece of a file.
using WritePiece = std::function<absl::Status(std::string_view piece)>;
// Gives a file's bytes to `write`, piece by piece in order. Its first error ends the checkpoint.
using FileContent = std::function<absl::Status(const WritePiece& write)>;

// A checkpoint whose every hash fitted when it was loaded.
struct Checkpoint {
  RunState state;
  std::filesystem::path directory;
  std::set<std::string> files;    // Names in `directory`.
  std::vector<uint64_t> damaged;  // Steps of newer ones, which LoadNewest has skipped.
};

// A checkpoint whose weights were evaluated.
struct ScoredCheckpoint {
  uint64_t committed_steps = 0;
  double value = 0;  // The metric's that was asked for.
};

std::string CheckpointName(uint64_t committed_steps);  // "step_000025"

// Where the files of that checkpoint are until it is complete; `directory` is the store's.
std::filesystem::path UnfinishedCheckpoint(const std::filesystem::path& directory,
                                           uint64_t committed_steps);

// Writes one file and fsyncs it. kResourceExhausted when the disk is full.
absl::StatusOr<FileDigest> WriteContent(const std::filesystem::path& path,
                                        const FileContent& content);

// Remembers in the run's own directory that it has had this checkpoint; a failure is a warning.
void RememberCheckpoint(const std::filesystem::path& run_directory, uint64_t committed_steps);

// kDataLoss if checkpoints/ has none, whole or damaged, and the run has had one: it is remembered,
// ended.json tells of an end that comes after one, or there are weights/. To start over would
// destroy what is left of the run.
absl::Status CheckNotLost(const std::filesystem::path& run_directory);

class CheckpointStore {
 public:
  // Keeps the `keep` newest checkpoints, including the one just written; at least 1. Besides it
  // keeps Best(best), unless `best` is empty.
  CheckpointStore(std::filesystem::path directory, uint32_t keep, std::string best = "");

  // Waits for the files that other processes write to UnfinishedCheckpoint, and returns their
  // digests by name.
  using Others = std::function<absl::StatusOr<std::map<std::string, FileDigest>>()>;

  // Makes UnfinishedCheckpoint, empty: before others write there, and before Write.
  absl::Status Prepare(uint64_t committed_steps) const;

  // Returns the number of bytes written. `others` is null, or Prepare was called; it is called
  // after the own files are written. `may_commit` is asked when all files are written, before
  // the first rename. After its error or that of a file, older checkpoints are unchanged;
  // kResourceExhausted when the disk is full, kFailedPrecondition where no try can succeed. The
  // marks for people cost no checkpoint: where one cannot be written there is none, and a warning.
  // kOwedWeights come last but for the manifest: if they cannot be written, or leave no room for
  // it, the checkpoint is there without them and without the first owed evaluation, and a warning.
  absl::StatusOr<uint64_t> Write(const RunState& state,
                                 const std::map<std::string, FileContent>& files,
                                 const std::function<absl::Status()>& may_commit = {},
                                 const Others& others = nullptr) const;

  // The committed steps of all checkpoints, whole or damaged, newest first; none if there is no
  // directory.
  absl::StatusOr<std::vector<uint64_t>> Listed() const;
  // Whether there is none.
  absl::StatusOr<bool> empty() const;

  // The newest valid checkpoint. Logs a warning for each newer one that is damaged. kNotFound if
  // there is none, kDataLoss if none is valid; the disk's error if a newer one cannot be read.
  absl::StatusOr<Checkpoint> LoadNewest() const;

  // Renames damaged checkpoints, so that they are in nobody's way and nobody deletes them.
  absl::Status SetDamagedAside(const std::vector<uint64_t>& steps) const;

  // The state in the newest manifest that can be read; the files beside it are not looked at.
  std::optional<RunState> NewestState() const;

  // The checkpoint of `committed_steps`. kNotFound lists the existing ones; kDataLoss if it is
  // damaged.
  absl::StatusOr<Checkpoint> LoadAt(uint64_t committed_steps) const;

  // The checkpoint with the highest value of `metric`, the earliest of equals. Only manifests are
  // read; nothing if none that can be read has the metric.
  std::optional<ScoredCheckpoint> Best(const std::string& metric) const;

  // The checkpoint that `name` names: "newest", "best" (by the metric `best`), or a number of
  // steps. kInvalidArgument for other names; else as LoadNewest and LoadAt.
  absl::StatusOr<Checkpoint> LoadNamed(const std::string& name, const std::string& best) const;

  // Makes the checkpoint of `committed_steps` the newest: later ones are renamed to
  // "rolled_back_000050" and ignored from then on. kNotFound lists the existing ones; kDataLoss if
  // the wanted one is damaged. After an error nothing has changed.
  absl::StatusOr<RunState> RollBack(uint64_t committed_steps) const;

 private:
  absl::Status WriteFiles(const std::filesystem::path& directory, const RunState& state,
                          const std::map<std::string, FileContent>& files, const Others& others,
                          uint64_t& bytes) const;
  absl::StatusOr<Checkpoint> Load(uint64_t committed_steps) const;
  absl::StatusOr<CheckpointManifest> ManifestOf(uint64_t committed_steps) const;
  void Prune(uint64_t written) const;
  void NameForPeople(const char* file, uint64_t committed_steps) const;

  const std::filesystem::path directory_;
  const uint32_t keep_;
  const std::string best_;
};

}  // namespace oxbow::learner
