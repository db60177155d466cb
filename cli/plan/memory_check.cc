// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/memory_check.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "cli/oncall/machine_checks.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/resource_plan.h"
#include "cli/plan/reward_plan.h"
#include "core/model/device.h"
#include "core/model/device_memory.h"

namespace oxbow::cli {

Gpus GpusHere() { return {.count = model::GpuCount(), .bytes = model::GpuBytes()}; }

absl::StatusOr<Gpus> ParseGpus(const std::string& text) {
  constexpr int kGpusMax = 1024;
  constexpr double kGibMax = 1 << 20;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('x', 1));
  Gpus gpus;
  double gib = 0;
  const bool read = parts.size() == 2 && absl::SimpleAtoi(parts[0], &gpus.count) &&
                    absl::SimpleAtod(parts[1], &gib);
  if (!read || gpus.count < 1 || gpus.count > kGpusMax || !(gib > 0 && gib <= kGibMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus takes a number of GPUs and the GiB of each, such as 8x80: ", text));
  }
  gpus.bytes = static_cast<uint64_t>(gib * (uint64_t{1} << 30));
  return gpus;
}

std::vector<ProcessRow> ProcessesOn(const Gpus& gpus, const v1::RunConfig& config,
                                    const run::ModelFacts& facts) {
  return ProcessRows(config, facts, RewardBytes(config.reward()), gpus.count);
}

std::vector<config::Problem> CheckMemory(const v1::RunConfig& config,
                                         const std::vector<ProcessRow>& rows, const Gpus& gpus,
                                         bool elsewhere) {
  std::vector<config::Problem> problems;
  const uint64_t available = elsewhere ? 0 : LookAtMachine({}, {}).memory_available;
  if (auto host = CheckHostMemory(rows, available)) problems.push_back(*host);
  if (auto gpu = CheckGpuLoad(config, rows, gpus)) problems.push_back(*gpu);
  return problems;
}

std::vector<config::Problem> CheckDisks(const v1::RunConfig& config, const run::ModelFacts& facts) {
  std::vector<config::Problem> problems;
  const std::vector<Disk> disks = LookAtDisks(DiskSharesOf(config, facts));
  const Checks checks = JudgeDisks(disks);
  for (size_t i = 0; i < disks.size(); ++i) {
    if (disks[i].free >= disks[i].needs) continue;
    problems.push_back({checks[i].ends_run ? config::Severity::kError : config::Severity::kWarning,
                        disks[i].keys.front(), absl::StrCat(checks[i].found, ": ", checks[i].fix),
                        absl::StatusCode::kResourceExhausted});
  }
  return problems;
}

absl::Status FirstMemoryError(const std::vector<config::Problem>& problems,
                              const config::Provenance& provenance) {
  const absl::Status first = config::FirstError(problems, provenance);
  return first.ok() ? first : OutOfMemoryError(std::string(first.message()));
}

}  // namespace oxbow::cli
