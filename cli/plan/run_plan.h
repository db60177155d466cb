// What a run will do and take, before it starts: batch arithmetic, which steps are kept, memory.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/flow/dynamics.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

// Independent of workers and ranks.
std::string BatchText(const v1::RunConfig& config);

// Noise level and sensitivity kc of every step, and i_off: how many transitions of a stored
// trajectory are replayed and weighted.
std::string StepTable(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

struct MemoryItem {
  enum class Held { kAlways, kAtStart, kInTraining };
  std::string what;
  uint64_t bytes = 0;
  Held held = Held::kAlways;
};

// Of a process that holds these: what is there always, and the larger of start and training.
uint64_t PeakOf(const std::vector<MemoryItem>& items);

// Trained steps whose gradients one backward pass of one rank computes.
uint64_t RowsOfPass(const v1::RunConfig& config);

// What the learner holds. Everything it trains is float32; text encoders are there until prompts
// are encoded (not at all if a cache has them); activations are those of a backward pass within a
// quarter, and none where the transformer is not known.
std::vector<MemoryItem> LearnerMemory(const v1::RunConfig& config, const run::ModelFacts& facts);

// What a worker holds, activations excepted: transformer and decoder as it samples with them, and
// as they came. It has no text encoder.
std::vector<MemoryItem> WorkerMemory(const v1::RunConfig& config, const run::ModelFacts& facts);

// What the run writes at most: checkpoints with the one being written, the final weights, and the
// replay buffer when it is full, twice for what compaction has not caught up with.
uint64_t DiskBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts);

// Latent bytes of the groups that may be under way or waiting at once; services.sink_bytes_max must
// be at least that.
uint64_t SinkBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts);

std::string MemoryText(const v1::RunConfig& config, const run::ModelFacts& facts);

// All of the above. kInvalidArgument if the sampling settings make no schedule.
absl::StatusOr<std::string> RunPlanText(const v1::RunConfig& config, const run::ModelFacts& facts);

}  // namespace oxbow::cli
