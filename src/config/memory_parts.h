// SPDX-License-Identifier: Apache-2.0
// The parts and the rungs of model.memory, by which a run needs less memory. Its text is parsed
// here alone.
//
// configs/defaults.yaml has the ladders of a GPU. A LoRA whose workers merge it takes no int8, and
// a CPU recomputes and takes int8 alone. `auto` is chosen at the start of a run, by
// cli/plan/machine_load.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "oxbow/v1/config.pb.h"

namespace YAML {
class Node;
}

namespace oxbow::config {

struct MemoryParts {
  bool recompute = false;          // Training keeps each block's input and recomputes the rest.
  bool int8 = false;               // The frozen weights of a LoRA; core/model/int8_weights.h.
  bool guided_apart = false;       // A LoRA's two halves of guidance train one after the other.
  bool offload_inputs = false;     // With recompute: the blocks' inputs are in pinned host memory.
  bool shard_gradients = false;    // A rank keeps the sum of gradients of its own piece only.
  bool offload_optimizer = false;  // AdamW's moments are in pinned host memory.
  bool offload_average = false;    // So is the running average.
  bool offload_weights = false;    // So are the weights; a GPU has those of two blocks at a time.
  bool whole_optimizer = false;    // More memory: every rank keeps the moments of all weights.

  bool operator==(const MemoryParts&) const = default;
};

inline constexpr char kMemoryAuto[] = "auto";

// kInvalidArgument names what is no part.
absl::StatusOr<MemoryParts> ParseMemory(const v1::ModelConfig& model);

// The parts of a valid config. `auto` that nobody chose for, as in a process started by hand, has
// none.
MemoryParts MemoryOf(const v1::ModelConfig& model);

// The dtype of the products of workers: model.rollout_dtype, or else that of training.
v1::StorageDType RolloutType(const v1::ModelConfig& model);

// The config by which workers compute: with RolloutType in the place of model.compute_dtype.
v1::RunConfig AsWorkersCompute(v1::RunConfig config);

// Whether learner ranks lend the frozen weights to workers on their GPU (core/model/lent_base.h).
bool LendsBase(const v1::ModelConfig& model);
// The folder of a run's directory in which they say so.
inline constexpr char kLentFolder[] = "lent";

// "fast", "recompute + int8"
std::string MemoryName(const MemoryParts& parts);

// The first part of the ladder that a run does not have and that would help it; empty: none.
std::string NextMemoryPart(const v1::RunConfig& config);

// From fast to smallest.
std::vector<MemoryParts> MemoryRungs(const v1::ModelConfig& model);

// Puts model.memory in the place of the keys that its parts were, in the root of a config that an
// older version has written.
void TranslateMemory(YAML::Node& root);

}  // namespace oxbow::config
