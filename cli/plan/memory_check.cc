// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/memory_check.h"

#include "cli/oncall/machine_facts.h"
#include "cli/plan/gpu_load.h"
#include "cli/plan/resource_plan.h"
#include "cli/plan/reward_plan.h"
#include "core/model/device.h"
#include "core/model/device_memory.h"

namespace oxbow::cli {

std::vector<config::Problem> CheckMemory(const v1::RunConfig& config,
                                         const run::ModelFacts& facts) {
  std::vector<config::Problem> problems;
  const uint64_t available = LookAtMachine(config.run().directory(), {}).memory_available;
  const BytesOfDevices rewards = RewardBytes(config);
  const Gpus gpus{.count = model::GpuCount(), .bytes = model::GpuBytes()};
  if (auto host = CheckHostMemory(config, facts, available, rewards)) problems.push_back(*host);
  if (auto gpu = CheckGpuLoad(config, facts, rewards, gpus)) problems.push_back(*gpu);
  return problems;
}

}  // namespace oxbow::cli
