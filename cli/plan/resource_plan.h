// SPDX-License-Identifier: Apache-2.0
// The memory and disk that a run will take, before it starts. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/oncall/machine_checks.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

struct MemoryItem {
  enum class Held { kAlways, kAtStart, kInTraining };
  std::string what;
  uint64_t bytes = 0;
  Held held = Held::kAlways;
  bool on_host = false;  // Else where the model computes.
};

// Peak memory of a process that holds `items`: what it always holds, and the larger of what it
// holds at the start and in training.
uint64_t PeakOf(const std::vector<MemoryItem>& items);

// The part of that where the model computes: on the GPU of a rank or worker.
uint64_t DevicePeakOf(std::vector<MemoryItem> items);

// Memory of rank 0 of the learner. Everything it trains is float32. Text encoders are there until
// the prompts are encoded (not at all if a cache has them). Activations are those of a backward
// pass, right to about a quarter; 0 where the transformer is not known.
std::vector<MemoryItem> LearnerMemory(const v1::RunConfig& config, const run::ModelFacts& facts);
// The same of a rank above 0, which serves no weights.
std::vector<MemoryItem> MemberMemory(const v1::RunConfig& config, const run::ModelFacts& facts);

// Memory of a worker that `oxbow train` starts: transformer and decoder as it samples with them,
// and as they came, and what sampling and decoding take beside them. It has no text encoder.
// `borrows`: it has the base of a rank on its GPU.
std::vector<MemoryItem> WorkerMemory(const v1::RunConfig& config, const run::ModelFacts& facts,
                                     bool borrows = false);

inline constexpr uint64_t kProcessBytes = uint64_t{200}
                                          << 20;  // Libraries and queues of a process.

// Processes that `oxbow train` starts, learner ranks counted one by one.
uint32_t ProcessesOf(const v1::RunConfig& config);

// The sum of these processes' limits on this machine, and of the processes themselves, where
// `oxbow train` divides `memory` among them (base/memory_limits.h).
uint64_t MemoryLimitsOf(const v1::RunConfig& config, uint64_t memory);

// Bytes by device as a config names it: "cpu", "cuda" or "cuda:0".
using BytesOfDevices = std::map<std::string, uint64_t>;

// Bytes that the run's evaluations leave below samples/ and in TensorBoard's events, at most.
uint64_t EvaluationDiskBytes(const v1::RunConfig& config, const run::ModelFacts& facts);

// Bytes of the run's prompts that are still to be encoded into prompts.cache; 0 without one. One
// that any text encoders have put there counts as encoded.
uint64_t EncodedPromptBytes(const v1::RunConfig& config, const run::ModelFacts& facts);

// Most that the run writes, by place: the checkpoints, including one being written, the final
// weights, the pictures of its evaluations, its report and the numbers of its steps; a full replay
// buffer, counted twice because compaction lags behind; prompts to encode; copies of checkpoints.
// No run ends well without one checkpoint at each place for them, and the prompts.
std::vector<DiskShare> DiskSharesOf(const v1::RunConfig& config, const run::ModelFacts& facts);
uint64_t DiskBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts);  // Together.

std::string MemoryText(const v1::RunConfig& config, const run::ModelFacts& facts);

}  // namespace oxbow::cli
