// Which rank this process is, from the environment its launcher made.
//
// Spellings, the first that is there counts:
//
//   torchrun, JobSet   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT [LOCAL_RANK]
//                      without RANK, one rank per pod: JOB_COMPLETION_INDEX (an indexed job sets
//                      it), or the number that POD_NAME ends in (a stateful set)
//   srun               SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID; the address is the first
//                      host of SLURM_STEP_NODELIST, the port follows from SLURM_JOB_ID, unless
//                      MASTER_ADDR and MASTER_PORT say otherwise
//   by machine         MACHINE_RANK | NODE_RANK | INDEX, NUM_MACHINES | NUM_NODES | HOST_NUM,
//                      GPUS_PER_NODE (default 1), LOCAL_RANK, MASTER_PORT,
//                      MASTER_ADDR | MASTER_IP | CHIEF_IP
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace oxbow::parallel {

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // Among the ranks of this machine: which GPU is its own.
  std::string address = "127.0.0.1";
  int port = 0;
  bool store_is_hosted = false;  // TORCHELASTIC_USE_AGENT_STORE: torchrun's agent has the store.
  int restart = 0;               // TORCHELASTIC_RESTART_COUNT, or JOBSET_RESTART_ATTEMPT.
};

// The value of an environment variable; nothing or "" where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// One rank where no launcher left a trace. kInvalidArgument, one line, where it left half of one or
// numbers that cannot be.
absl::StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentLookup& lookup);

// "node[003-006,9],other" names node003 first.
std::string FirstHostOf(const std::string& slurm_node_list);

}  // namespace oxbow::parallel
