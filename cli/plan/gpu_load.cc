// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/gpu_load.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/plan/bytes_text.h"

namespace oxbow::cli {
namespace {

// The GPU of "cuda:1"; that of `slot` for "cuda"; none for a CPU.
std::optional<int> GpuOf(const std::string& device, int slot, int gpus) {
  if (!absl::StartsWith(device, "cuda")) return std::nullopt;
  int number = 0;
  if (absl::SimpleAtoi(absl::StripPrefix(device, "cuda:"), &number)) return number;
  return slot % std::max(1, gpus);
}

// What helps on a GPU that holds too much.
std::pair<std::string, std::string> KeyAndFix(const GpuLoad& load, uint64_t gpu_bytes) {
  if (load.rank_bytes > gpu_bytes) {
    return {"batch.rows_per_pass",
            "lower it or batch.group_size, or set model.checkpoint_activations"};
  }
  if (load.rank_bytes + load.worker_bytes > gpu_bytes) {
    return {"services.rollout_workers",
            "lower it, set sampling.rows_per_forward, or start workers on other GPUs"};
  }
  return {"reward.scorers", "give rewards another `device`, or lower services.reward_servers"};
}

}  // namespace

std::map<int, GpuLoad> LoadOfGpus(const v1::RunConfig& config, const run::ModelFacts& facts,
                                  const BytesOfDevices& rewards, int gpus) {
  std::map<int, GpuLoad> loads;
  const std::string& device = config.model().device();
  const uint32_t ranks = std::max(1u, config.learner().ranks());
  const uint32_t workers = config.services().rollout_workers();
  const uint64_t rank_bytes = DevicePeakOf(LearnerMemory(config, facts));
  const uint64_t worker_bytes = DevicePeakOf(WorkerMemory(config, facts));
  for (uint32_t slot = 0; slot < ranks + workers; ++slot) {
    const std::optional<int> gpu = GpuOf(device, static_cast<int>(slot), gpus);
    if (!gpu.has_value()) break;
    GpuLoad& load = loads[*gpu];
    const bool is_rank = slot < ranks;
    ++(is_rank ? load.ranks : load.workers);
    (is_rank ? load.rank_bytes : load.worker_bytes) += is_rank ? rank_bytes : worker_bytes;
  }
  for (const auto& [name, bytes] : rewards) {
    if (const auto gpu = GpuOf(name, 0, gpus)) loads[*gpu].reward_bytes += bytes;
  }
  return loads;
}

std::optional<config::Problem> CheckGpuLoad(const v1::RunConfig& config,
                                            const run::ModelFacts& facts,
                                            const BytesOfDevices& rewards, const Gpus& gpus) {
  if (gpus.bytes == 0) return std::nullopt;
  for (const auto& [gpu, load] : LoadOfGpus(config, facts, rewards, gpus.count)) {
    if (load.bytes() <= gpus.bytes) continue;
    std::vector<std::string> parts;
    const auto add = [&](uint32_t count, const char* what, uint64_t bytes) {
      if (bytes == 0) return;
      parts.push_back(count == 1 ? absl::StrCat("a ", what, " takes ", BytesText(bytes))
                                 : absl::StrCat(count, " ", what, "s take ", BytesText(bytes)));
    };
    add(load.ranks, "learner rank", load.rank_bytes);
    add(load.workers, "rollout worker", load.worker_bytes);
    if (load.reward_bytes > 0) {
      parts.push_back(absl::StrCat("rewards take ", BytesText(load.reward_bytes)));
    }
    const auto [key, fix] = KeyAndFix(load, gpus.bytes);
    return config::Problem{config::Severity::kWarning, key,
                           absl::StrCat("on cuda:", gpu, " ", absl::StrJoin(parts, ", "),
                                        "; it has ", BytesText(gpus.bytes), ": ", fix)};
  }
  return std::nullopt;
}

}  // namespace oxbow::cli
