// SPDX-License-Identifier: Apache-2.0
// Groups of a made-up run, whose content follows from their id: the worker makes it, and the rank
// that gets it knows what it must be. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/image8.h"
#include "bench/fleet/load.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/coordinator/group_check.h"

namespace oxbow::bench {

inline constexpr uint32_t kGroupSize = 16;
inline constexpr char kReward[] = "grey";  // The value of the first pixel, 0 to 1.

bool IsLarge(const Load& load, uint64_t group);
uint64_t LatentBytes(const Load& load, uint64_t group);  // The whole group's.

// The learner's rules. All groups have latents of one shape: a small one sends fewer.
learner::GroupRules RulesOf(const Load& load);
// The stochastic steps of a group, T flags.
std::vector<bool> WindowOf(const Load& load, uint64_t group);

// Latent bytes that a rank's sink must hold: its share of the steps that are
// planned, and one group more.
uint64_t SinkBytes(const Load& load);

// The pictures of a group, one for each sample, and what kReward says of one.
std::vector<Image8> PicturesOf(const Load& load, uint64_t group);
double RewardOf(uint64_t group, uint32_t sample);

// The finished group of a lease. `scores` by sample.
v1::Group MakeGroup(const Load& load, const std::string& worker, uint64_t epoch,
                    const v1::Lease& lease, const std::vector<double>& scores);

// kDataLoss if a trajectory has other latents or another reward than MakeGroup gives it.
absl::Status CheckContent(const Load& load, const v1::Group& group);

}  // namespace oxbow::bench
