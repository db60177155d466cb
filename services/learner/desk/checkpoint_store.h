// Step-atomic checkpoints on disk: a directory appears whole or not at all, and is believed only if
// every hash fits.
//
//   checkpoints/step_000025/   FILE...           as given
//                              manifest.json     {"state": {...}, "files": {name: {sha256, bytes}}}
//
// Files are written to step_000025.tmp and fsynced, the directory is renamed, the new checkpoint is
// read back, and only then are older ones deleted, and newer ones, which did not load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/learner/desk/prompt_order.h"

namespace oxbow::learner {

// Where a run stood, besides its tensors.
struct RunState {
  uint64_t committed_steps = 0;
  uint64_t policy_version = 0;
  uint64_t epoch = 0;             // That wrote it.
  PromptPosition prompts;         // Before the plan of step `committed_steps`.
  std::string config_sha256;      // Of what must not change over a resume.
  std::string buffer_checkpoint;  // Name in the replay buffer; empty: none.
  double wall_seconds = 0;
  double best_reward = 0;  // Of held-out evaluations, as the publication gate knows it.
};

struct Checkpoint {
  RunState state;
  std::map<std::string, std::string> files;  // Name -> content.
};

std::string CheckpointName(uint64_t committed_steps);  // "step_000025"

class CheckpointStore {
 public:
  // `keep` are kept, the one just written and older ones; at least 1.
  CheckpointStore(std::filesystem::path directory, uint32_t keep);

  // Returns the bytes written. kResourceExhausted when the disk is full; older checkpoints are then
  // untouched.
  absl::StatusOr<uint64_t> Write(const Checkpoint& checkpoint) const;

  // Whether there is no checkpoint, whole or damaged.
  bool empty() const;

  // The newest checkpoint that is whole. Logs a warning for each newer one that is not. kNotFound
  // if there is none, kDataLoss if none is whole.
  absl::StatusOr<Checkpoint> LoadNewest() const;

  // That of `committed_steps`. kNotFound says which there are, kDataLoss if it is damaged.
  absl::StatusOr<Checkpoint> LoadAt(uint64_t committed_steps) const;

  // Makes the checkpoint of `committed_steps` the newest: later ones are renamed to
  // "rolled_back_000050", where nothing looks for them. kNotFound says which there are; kDataLoss
  // if the wanted one is damaged; nothing has changed then.
  absl::StatusOr<RunState> RollBack(uint64_t committed_steps) const;

 private:
  absl::StatusOr<Checkpoint> Load(const std::filesystem::path& path) const;
  void Prune(const std::filesystem::path& written) const;

  const std::filesystem::path directory_;
  const uint32_t keep_;
};

}  // namespace oxbow::learner
