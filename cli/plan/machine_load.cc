// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/machine_load.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/plan/bytes_text.h"
#include "config/device_plan.h"
#include "config/memory_parts.h"

namespace oxbow::cli {
namespace {

// By which a plan is above the peak that is measured, at most.
constexpr double kPlanError = 0.15;

// The cheapest key that is left to make a rank need less memory, and how to set it.
std::pair<std::string, std::string> KeyOfRank(const v1::RunConfig& config) {
  const std::string part = config::NextMemoryPart(config);
  if (part != "recompute" && config.model().compute_dtype() != v1::STORAGE_D_TYPE_BF16) {
    return {"model.compute_dtype", "set bf16, or lower batch.rows_per_pass"};
  }
  if (part.empty()) return {"batch.rows_per_pass", "lower it or batch.group_size"};
  return {"model.memory", absl::StrCat("add ", part, ", or lower batch.rows_per_pass")};
}

std::pair<std::string, std::string> KeyAndFix(const v1::RunConfig& config, const GpuLoad& load,
                                              uint64_t gpu_bytes) {
  if (load.rank_bytes > gpu_bytes) return KeyOfRank(config);
  if (load.worker_bytes > gpu_bytes) {
    return {"sampling.rows_per_forward",
            "set it, or lower services.groups_in_flight or services.rollout_workers"};
  }
  if (load.rank_bytes + load.worker_bytes > gpu_bytes) {
    return {"services.rollout_workers",
            "lower it and learner.ranks until each has a GPU of its own, or set "
            "sampling.rows_per_forward, or add offload_weights to model.memory"};
  }
  return {"reward.scorers", "give rewards another `device`, or lower services.reward_servers"};
}

// The values of model.memory that may fit, best first.
std::vector<std::string> MemoriesToTry(const config::ResolvedConfig& resolved, const Gpus& gpus) {
  const v1::ModelConfig& model = resolved.config.model();
  if (!resolved.chosen_memory) return {config::MemoryName(config::MemoryOf(model))};
  std::vector<config::MemoryParts> rungs = config::MemoryRungs(model);
  if (gpus.bytes == 0 || model.device() == "cpu") rungs.resize(1);
  std::vector<std::string> memories;
  for (const config::MemoryParts& rung : rungs) memories.push_back(config::MemoryName(rung));
  return memories;
}

}  // namespace

std::map<int, GpuLoad> LoadOfGpus(const std::vector<ProcessRow>& rows) {
  std::map<int, GpuLoad> loads;
  for (const ProcessRow& row : rows) {
    if (row.gpu < 0) continue;
    GpuLoad& load = loads[row.gpu];
    load.ranks += row.kind == ProcessKind::kRank;
    load.workers += row.kind == ProcessKind::kWorker;
    (row.kind == ProcessKind::kRank     ? load.rank_bytes
     : row.kind == ProcessKind::kWorker ? load.worker_bytes
                                        : load.reward_bytes) += row.gpu_bytes;
  }
  return loads;
}

std::optional<config::Problem> CheckGpuLoad(const v1::RunConfig& config,
                                            const std::vector<ProcessRow>& rows, const Gpus& gpus) {
  if (gpus.bytes == 0) return std::nullopt;
  for (const auto& [gpu, load] : LoadOfGpus(rows)) {
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
    const auto [key, fix] = KeyAndFix(config, load, gpus.bytes);
    const bool certain =
        static_cast<double>(load.bytes()) > (1 + kPlanError) * static_cast<double>(gpus.bytes);
    return config::Problem{certain ? config::Severity::kError : config::Severity::kWarning, key,
                           absl::StrCat("on cuda:", gpu, " ", absl::StrJoin(parts, ", "),
                                        "; it has ", BytesText(gpus.bytes), ": ", fix),
                           absl::StatusCode::kResourceExhausted};
  }
  return std::nullopt;
}

void Settle(const run::ModelFacts& facts, const BytesOfDevices& rewards, const Gpus& gpus,
            config::ResolvedConfig& resolved) {
  run::FillLoraTargets(*facts.architecture, *resolved.config.mutable_model());
  const bool counted = resolved.counted_ranks || resolved.counted_workers;
  const std::vector<std::string> memories = MemoriesToTry(resolved, gpus);
  using config::GpuSharing;
  for (const std::string& memory : memories) {
    resolved.config.mutable_model()->set_memory(memory);
    if (memory != memories.front()) resolved.provenance["model.memory"] = config::kMemoryAuto;
    if (!counted && memories.size() == 1) return;
    for (const GpuSharing sharing :
         {GpuSharing::kTogether, GpuSharing::kApart, GpuSharing::kApartFromRewards}) {
      v1::RunConfig tried = resolved.config;
      if (resolved.counted_ranks) tried.mutable_learner()->set_ranks(config::kAuto);
      if (resolved.counted_workers) tried.mutable_services()->set_rollout_workers(config::kAuto);
      config::CountProcesses(gpus.count, sharing, tried);
      const auto rows = ProcessRows(tried, facts, rewards, gpus.count);
      if (!CheckGpuLoad(tried, rows, gpus).has_value()) {
        resolved.config = std::move(tried);
        return;
      }
      if (!counted) break;
    }
  }
}

std::string MemoryChoice(const config::ResolvedConfig& resolved,
                         const std::vector<ProcessRow>& rows, const Gpus& gpus) {
  if (!resolved.chosen_memory) return "";
  uint64_t most = 0;
  for (const auto& [gpu, load] : LoadOfGpus(rows)) most = std::max(most, load.bytes());
  return absl::StrCat("auto -> ", resolved.config.model().memory(),
                      most == 0 || gpus.bytes == 0
                          ? ""
                          : absl::StrCat(", ", BytesText(most), " of ", BytesText(gpus.bytes),
                                         " on the fullest GPU"));
}

uint64_t HostBytes(const std::vector<ProcessRow>& rows) {
  uint64_t bytes = kProcessBytes;
  for (const ProcessRow& row : rows) bytes += row.host_bytes;
  return bytes;
}

std::optional<config::Problem> CheckHostMemory(const std::vector<ProcessRow>& rows,
                                               uint64_t available) {
  const uint64_t needed = HostBytes(rows);
  if (available == 0 || needed <= available) return std::nullopt;
  return config::Problem{
      config::Severity::kWarning, "batch.rows_per_pass",
      absl::StrCat("the processes of the run take ", BytesText(needed),
                   " of memory, this machine has ", BytesText(available),
                   " left: lower it, batch.group_size or services.rollout_workers, or set "
                   "model.memory: recompute")};
}

}  // namespace oxbow::cli
