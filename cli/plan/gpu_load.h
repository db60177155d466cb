// SPDX-License-Identifier: Apache-2.0
// What the processes of `oxbow train` hold on each GPU of one machine. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cli/plan/resource_plan.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

// The GPUs of this machine. `bytes` is the memory of each; 0: not known.
struct Gpus {
  int count = 0;
  uint64_t bytes = 0;
};

// Ranks and workers on a GPU, and what they and the rewards take there at most.
struct GpuLoad {
  uint32_t ranks = 0;
  uint32_t workers = 0;
  uint64_t rank_bytes = 0;
  uint64_t worker_bytes = 0;
  uint64_t reward_bytes = 0;
  uint64_t bytes() const { return rank_bytes + worker_bytes + reward_bytes; }
};

// By GPU. Ranks take the first GPUs, workers those behind them, and from the first one again where
// there are no more (`--gpu-slot` of rollout_worker). A device with a number is that GPU for all.
std::map<int, GpuLoad> LoadOfGpus(const v1::RunConfig& config, const run::ModelFacts& facts,
                                  const BytesOfDevices& rewards, int gpus);

// A warning for the first GPU that cannot hold all that is on it.
std::optional<config::Problem> CheckGpuLoad(const v1::RunConfig& config,
                                            const run::ModelFacts& facts,
                                            const BytesOfDevices& rewards, const Gpus& gpus);

}  // namespace oxbow::cli
