// Step-atomic checkpoints on disk: a directory appears complete or not at all, and is loaded only
// if every hash matches.
//
//   checkpoints/step_000025/   FILE...           as given
//                              manifest.json     {"state": {...}, "files": {name: {sha256, bytes}}}
//
// Files are written to step_000025.tmp and fsynced, the directory is renamed, and the new
// checkpoint is read back. Only then are older checkpoints deleted, and newer ones that could not
// be loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/learner/coordinator/prompt_order.h"

namespace oxbow::learner {

// The state of a run, except its tensors.
struct RunState {
  uint64_t committed_steps = 0;
  uint64_t policy_version = 0;
  uint64_t epoch = 0;             // Epoch that wrote the checkpoint.
  PromptPosition prompts;         // Position before the plan of step `committed_steps`.
  std::string config_sha256;      // Hash of the config values that must not change over a resume.
  std::string buffer_checkpoint;  // Name in the replay buffer; empty: none.
  double wall_seconds = 0;
  double best_reward = 0;  // Best held-out reward, for the publication gate.
};

struct Checkpoint {
  RunState state;
  std::map<std::string, std::string> files;  // Name -> content.
};

std::string CheckpointName(uint64_t committed_steps);  // "step_000025"

class CheckpointStore {
 public:
  // Keeps the `keep` newest checkpoints, including the one just written; at least 1.
  CheckpointStore(std::filesystem::path directory, uint32_t keep);

  // Returns the number of bytes written. kResourceExhausted when the disk is full; older
  // checkpoints are then unchanged.
  absl::StatusOr<uint64_t> Write(const Checkpoint& checkpoint) const;

  // Whether the directory has no checkpoint, valid or damaged.
  bool empty() const;

  // The newest valid checkpoint. Logs a warning for each newer one that is damaged. kNotFound if
  // there is none, kDataLoss if none is valid.
  absl::StatusOr<Checkpoint> LoadNewest() const;

  // The checkpoint of `committed_steps`. kNotFound lists the existing ones; kDataLoss if it is
  // damaged.
  absl::StatusOr<Checkpoint> LoadAt(uint64_t committed_steps) const;

  // Makes the checkpoint of `committed_steps` the newest: later ones are renamed to
  // "rolled_back_000050" and ignored from then on. kNotFound lists the existing ones; kDataLoss if
  // the wanted one is damaged. After an error nothing has changed.
  absl::StatusOr<RunState> RollBack(uint64_t committed_steps) const;

 private:
  absl::StatusOr<Checkpoint> Load(const std::filesystem::path& path) const;
  void Prune(const std::filesystem::path& written) const;

  const std::filesystem::path directory_;
  const uint32_t keep_;
};

}  // namespace oxbow::learner
