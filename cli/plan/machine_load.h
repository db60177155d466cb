// SPDX-License-Identifier: Apache-2.0
// Whether the processes of `oxbow train` fit on one machine: on each of its GPUs, and in its
// memory. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/process_table.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {

// Ranks and workers on a GPU, and what they and the rewards take there at most.
struct GpuLoad {
  uint32_t ranks = 0;
  uint32_t workers = 0;
  uint64_t rank_bytes = 0;
  uint64_t worker_bytes = 0;
  uint64_t reward_bytes = 0;
  uint64_t bytes() const { return rank_bytes + worker_bytes + reward_bytes; }
};

// By GPU.
std::map<int, GpuLoad> LoadOfGpus(const std::vector<ProcessRow>& rows);

// The first GPU that cannot hold all that is on it: an error where it is too small by more than the
// plan may be wrong (docs/device_budgets.md), else a warning.
std::optional<config::Problem> CheckGpuLoad(const v1::RunConfig& config,
                                            const std::vector<ProcessRow>& rows, const Gpus& gpus);

// Fills in what follows from the model and the machine: the layers of an adapter
// (run::FillLoraTargets); the first rung of model.memory that fits where it was `auto`, the last
// one if none does; and where ranks and workers were `auto` and do not fit on one GPU, their
// numbers apart. `rewards`: weights of one reward server.
void Settle(const run::ModelFacts& facts, const BytesOfDevices& rewards, const Gpus& gpus,
            config::ResolvedConfig& resolved);

// "auto -> recompute + int8, 61.0 GiB of 80.0 GiB on the fullest GPU"; empty where model.memory was
// not `auto`.
std::string MemoryChoice(const config::ResolvedConfig& resolved,
                         const std::vector<ProcessRow>& rows, const Gpus& gpus);

// The bytes that all of them hold in the memory of the host, `oxbow train` itself included.
uint64_t HostBytes(const std::vector<ProcessRow>& rows);

// A warning where that is more than is `available`; 0: not known.
std::optional<config::Problem> CheckHostMemory(const std::vector<ProcessRow>& rows,
                                               uint64_t available);

}  // namespace oxbow::cli
