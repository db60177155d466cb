// SPDX-License-Identifier: Apache-2.0
// The environment variables that make a process one of several ranks, or a rank that was started
// again. Where none is set, ReadRankEnvironment (rank_environment.h) finds one rank, whatever else
// a launcher has set.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace oxbow::parallel {

inline constexpr const char* kRankVariable = "RANK";
inline constexpr const char* kWorldSizeVariable = "WORLD_SIZE";
inline constexpr const char* kSlurmStepVariable = "SLURM_STEP_NUM_TASKS";
inline constexpr const char* kAgentStoreVariable = "TORCHELASTIC_USE_AGENT_STORE";
inline constexpr std::initializer_list<const char*> kMachineCountVariables = {
    "NUM_MACHINES", "NUM_NODES", "HOST_NUM"};
// Alone they name ranks by half.
inline constexpr std::initializer_list<const char*> kHalfVariables = {"MASTER_ADDR", "MASTER_PORT",
                                                                      "LOCAL_RANK", "MACHINE_RANK"};
inline constexpr std::initializer_list<const char*> kRestartVariables = {
    "SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT", "TORCHELASTIC_RESTART_COUNT"};

// All of them.
inline std::vector<std::string> RankVariables() {
  std::vector<std::string> all = {kRankVariable, kWorldSizeVariable, kSlurmStepVariable,
                                  kAgentStoreVariable};
  for (const auto& some : {kMachineCountVariables, kHalfVariables, kRestartVariables}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace oxbow::parallel
