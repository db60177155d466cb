// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint: the state of the run and the digests of the files, as JSON that is
// covered by a hash of its own.
//
//   {"files": {NAME: {"sha256", "bytes"}}, "sha256": "...", "state": {...}}
//
// "sha256" is the hash of the whole text with the 64 digits of this hash as zeros. Manifests of
// older versions have none and are read as they are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sha256.h"
#include "core/replay/reuse_rules.h"
#include "core/rl/prompt_progress.h"
#include "core/rl/success_record.h"
#include "services/learner/plan/prompt_order.h"

namespace oxbow::learner {

// The weights of an owed evaluation that are not the checkpoint's; there is at most one.
inline constexpr char kOwedWeights[] = "owed_evaluation.safetensors";

// The state of a run, except its tensors.
struct RunState {
  uint64_t committed_steps = 0;
  uint64_t policy_version = 0;
  uint64_t epoch = 0;      // Epoch that wrote the checkpoint.
  std::string run_uid;     // The run's (run/run_record.h); empty in checkpoints of older versions.
  PromptPosition prompts;  // Position before the plan of step `committed_steps`.
  std::string config_sha256;      // Hash of the config values that must not change over a resume.
  std::string buffer_checkpoint;  // Name in the replay buffer; empty: none.
  double wall_seconds = 0;
  replay::ReuseState reuse;     // Knowledge of the fresh groups so far,
  rl::SuccessRecord known;      // and of their prompts; empty unless prompts are chosen by it.
  rl::PromptProgress progress;  // Empty in checkpoints of older versions.
  double best_reward = 0;       // Best held-out reward, for the publication gate.
  // Content of the prompts that were read, by config key ("prompts.train"); empty in checkpoints of
  // older versions.
  std::map<std::string, std::string> prompts_sha256;
  // The digest of each component of the model (io/model_digest.h); empty in checkpoints of older
  // versions.
  std::map<std::string, std::string> model_sha256;
  // By reward name: what the run was trained and measured with. Empty in checkpoints of older
  // versions.
  std::map<std::string, std::string> reward_identities;
  // The numbers of the evaluation of just these weights, by metric; empty if they were not
  // evaluated.
  std::map<std::string, double> evaluated;
  // Committed steps whose evaluation a stop cut off, in order: the run draws them when it is
  // resumed. Weights that are not the checkpoint's are beside it (kOwedWeights).
  std::vector<uint64_t> owed_evaluations;
};

struct CheckpointManifest {
  RunState state;
  std::map<std::string, FileDigest> files;  // By name.
};

// Numbers of `state` that are not finite are left out, and read as 0.
std::string ManifestText(const CheckpointManifest& manifest);

// kDataLoss, with what is wrong, for text that ManifestText (of this or an older version) did not
// write: no JSON, a hash that does not fit, a value of another type, a file name with a slash.
absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text);

}  // namespace oxbow::learner
