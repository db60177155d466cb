// SPDX-License-Identifier: Apache-2.0
// The processes that `oxbow train` starts on one machine, with their devices and what they hold
// there. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan/resource_plan.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

// The GPUs of a machine. `bytes` is the memory of each; 0: not known.
struct Gpus {
  int count = 0;
  uint64_t bytes = 0;
};

// The memory that a process takes on a GPU beside its tensors: the driver's context and kernels.
inline constexpr uint64_t kGpuContextBytes = uint64_t{512} << 20;

enum class ProcessKind { kRank, kWorker, kReward, kBuffer };

// A process on one of its devices; a reward server with weights on several has a row for each.
struct ProcessRow {
  ProcessKind kind = ProcessKind::kRank;
  int number = 0;
  int gpu = -1;  // -1: the CPU.
  uint64_t gpu_bytes = 0;
  uint64_t host_bytes = 0;
};

// In the order in which a table shows them. `rewards`: weights of one reward server by the device
// that the config names; "cuda" is the GPU of its plan (config/device_plan.h).
std::vector<ProcessRow> ProcessRows(const v1::RunConfig& config, const run::ModelFacts& facts,
                                    const BytesOfDevices& rewards, int gpus);

// The rows as a table; processes with consecutive numbers and devices and with the same bytes share
// a line. Then what GPUs of several processes hold together, beside their size.
std::string ProcessTable(const std::vector<ProcessRow>& rows, const Gpus& gpus);

}  // namespace oxbow::cli
