// SPDX-License-Identifier: Apache-2.0
// The rank of this process, from the environment that its launcher set.
//
// The first of these sets of variables that is set counts:
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
//
// How often all ranks were started again: TORCHELASTIC_RESTART_COUNT, JOBSET_RESTART_ATTEMPT or
// SLURM_RESTART_COUNT.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/parallel/c10d_ranks.h"

namespace oxbow::parallel {

// The value of an environment variable; nothing or "" if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Fills in which rank this is and where ranks meet; the other fields are defaults. One rank if no
// launcher set anything. kInvalidArgument, one line, if a set is incomplete or a number impossible.
absl::StatusOr<JoinOptions> ReadRankEnvironment(const EnvironmentLookup& lookup);

// "node[003-006,9],other" names node003 first.
std::string FirstHostOf(const std::string& slurm_node_list);

}  // namespace oxbow::parallel
