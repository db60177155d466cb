// SPDX-License-Identifier: Apache-2.0
// How many processes of a run `auto` means on one machine, and which GPU each process takes. Pure;
// `oxbow train`, `validate` and `doctor` all ask this.
//
// Rank r takes GPU r. Workers take the GPUs behind the ranks, and the first ones again where there
// are no more. Rewards with `device: cuda` take the last GPUs. These are theirs alone where that
// makes nobody share who would not share otherwise.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// `auto` of learner.ranks and services.rollout_workers, before it is counted.
inline constexpr uint32_t kAuto = std::numeric_limits<uint32_t>::max();
inline constexpr char kAutoText[] = "auto";

// How ranks and workers whose number is `auto` take the GPUs.
enum class GpuSharing {
  kTogether,          // One of each on every GPU: with on-policy sampling they take turns.
  kApart,             // Half of the GPUs each, where both do not fit on one.
  kApartFromRewards,  // The same, but for the last GPU, which rewards on a GPU have alone.
};

// Puts numbers in the place of `auto`, for a machine with so many GPUs. Ranks must divide
// batch.groups. Together, rewards on a GPU have the last one of at least three alone if no rank
// takes it. Members of a broadcast are always apart. Without plain `model.device: cuda`, and
// without GPUs, `auto` is 1.
void CountProcesses(int gpus, GpuSharing sharing, v1::RunConfig& config);

// The GPU of each process by its number, where its device is plain "cuda".
struct DevicePlan {
  std::vector<int> ranks;
  std::vector<int> workers;
  std::vector<int> rewards;  // The run's own reward servers.
};

// `gpus` 0: not known; no number is taken twice then. Requires counted processes.
DevicePlan PlanDevices(const v1::RunConfig& config, int gpus);

// The GPU that a device means for a process whose plan says `planned`; none for "cpu" and "".
std::optional<int> GpuOf(const std::string& device, int planned);

}  // namespace oxbow::config
