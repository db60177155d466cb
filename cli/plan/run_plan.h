// What a run will do and take, before it starts: batch arithmetic, which steps are kept, memory.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/validate.h"
#include "core/flow/dynamics.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

// Independent of workers and ranks.
std::string BatchText(const v1::RunConfig& config);

// Noise level and sensitivity kc of every step, and i_off: how many transitions of a stored
// trajectory are replayed and weighted.
std::string StepTable(const v1::RunConfig& config, const flow::SamplingSpec& sampling);

// What is drawn: an image's or a video's size, and its latent.
std::string PictureText(const run::ModelFacts& facts);

struct MemoryItem {
  enum class Held { kAlways, kAtStart, kInTraining };
  std::string what;
  uint64_t bytes = 0;
  Held held = Held::kAlways;
};

// Peak memory of a process that holds `items`: what it always holds, and the larger of what it
// holds at the start and in training.
uint64_t PeakOf(const std::vector<MemoryItem>& items);

// What the learner holds. Everything it trains is float32. Text encoders are there until the
// prompts are encoded (not at all if a cache has them). Activations are those of a backward pass,
// right to about a quarter; 0 where the transformer is not known.
std::vector<MemoryItem> LearnerMemory(const v1::RunConfig& config, const run::ModelFacts& facts);

// What a worker holds, without activations: transformer and decoder as it samples with them, and as
// they came. It has no text encoder.
std::vector<MemoryItem> WorkerMemory(const v1::RunConfig& config, const run::ModelFacts& facts);

// Processes that `oxbow train` starts, learner ranks counted one by one.
uint32_t ProcessesOf(const v1::RunConfig& config);

// What all of them hold together on one machine, without the activations of workers. `rewards`:
// weights of rewards on the model's device (cli/plan/reward_plan.h).
uint64_t MemoryNeeded(const v1::RunConfig& config, const run::ModelFacts& facts,
                      uint64_t rewards = 0);

// "on cuda  41.2 GiB: ..." where rewards have weights on the model's device, else nothing.
std::string DeviceText(const v1::RunConfig& config, const run::ModelFacts& facts, uint64_t rewards);

// A warning where that is more than is `available`; nothing on a GPU, whose memory is not known.
std::optional<config::Problem> CheckMemory(const v1::RunConfig& config,
                                           const run::ModelFacts& facts, uint64_t available,
                                           uint64_t rewards = 0);

// What the run writes at most: the checkpoints, including one being written; the final weights; and
// a full replay buffer, counted twice because compaction lags behind.
uint64_t DiskBytesNeeded(const v1::RunConfig& config, const run::ModelFacts& facts);

std::string MemoryText(const v1::RunConfig& config, const run::ModelFacts& facts);

// All of the above. kInvalidArgument if the sampling settings make no schedule.
absl::StatusOr<std::string> RunPlanText(const v1::RunConfig& config, const run::ModelFacts& facts);

}  // namespace oxbow::cli
