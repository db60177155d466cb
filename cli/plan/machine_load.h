// SPDX-License-Identifier: Apache-2.0
// Whether the processes of `oxbow train` fit on one machine: on each of its GPUs, in its memory and
// on its disks. Pure, but for the functions at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/plan/resource_plan.h"
#include "config/validate.h"
#include "oxbow/v1/config.pb.h"
#include "run/model_facts.h"

namespace oxbow::cli {

// The processes that `oxbow train` starts on one machine, with their devices and what they hold
// there. Pure.
//
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
// that the config names; "cuda" is the GPU of its plan (config/device_plan.h). Workers that have
// the base of a rank on their GPU (config::LendsBase) are without it.
std::vector<ProcessRow> ProcessRows(const v1::RunConfig& config, const run::ModelFacts& facts,
                                    const BytesOfDevices& rewards, int gpus);

// The rows as a table; processes with consecutive numbers and devices and with the same bytes share
// a line. Then what GPUs of several processes hold together, beside their size.
std::string ProcessTable(const std::vector<ProcessRow>& rows, const Gpus& gpus);

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

// The largest batch.rows_per_pass that `fits`: a whole update (0), or a half, a quarter and so on
// of it; what the config has where no larger one does.
uint32_t RowsThatFit(const v1::RunConfig& config,
                     const std::function<bool(const v1::RunConfig&)>& fits);

// Fills in what follows from the model and the machine: the layers of an adapter
// (run::FillLoraTargets); the first rung of model.memory that fits where it was `auto`, the last
// one if none does, and with it RowsThatFit where all weights come over the bus; and where ranks
// and workers were `auto` and do not fit on one GPU, their numbers apart. `rewards`: weights of one
// reward server.
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

// The GPUs of this machine.
Gpus GpusHere();

// "8x80": eight GPUs of 80 GiB each. kInvalidArgument.
absl::StatusOr<Gpus> ParseGpus(const std::string& text);

// The run's processes on a machine with these GPUs.
std::vector<ProcessRow> ProcessesOn(const Gpus& gpus, const v1::RunConfig& config,
                                    const run::ModelFacts& facts);

// Where the host of this machine, or a GPU, has less memory than `rows` take there. An error is a
// GPU that cannot hold it. `elsewhere`: the machine is another one, whose host is not known.
std::vector<config::Problem> CheckMemory(const v1::RunConfig& config,
                                         const std::vector<ProcessRow>& rows, const Gpus& gpus,
                                         bool elsewhere = false);

// Where a disk of this machine has less room than the run takes there. An error is one on which the
// run cannot come to its end.
std::vector<config::Problem> CheckDisks(const v1::RunConfig& config, const run::ModelFacts& facts);

// OK, or the first error of CheckMemory with its line; it ends a process with kExitOutOfMemory.
absl::Status FirstMemoryError(const std::vector<config::Problem>& problems,
                              const config::Provenance& provenance);

}  // namespace oxbow::cli
