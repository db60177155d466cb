// SPDX-License-Identifier: Apache-2.0
// The pictures of an evaluation: held-out prompts drawn by the plain ODE, by workers. A picture may
// be a video. Every evaluation starts from the same noise, so a picture depends on the weights and
// on its place alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/flow/sampler.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/plan/conditioning_cache.h"

namespace oxbow::learner {

// Held-out pictures start from noises of their own: the group of prompt i is this plus i. Groups of
// training count from 0.
inline constexpr uint64_t kEvaluationGroups = uint64_t{1} << 63;

// The key that the noise of a place is drawn from. Picture i shows prompt i mod `prompts`; its key
// names prompt and repetition, never the batch.
flow::NoiseKey HeldOutKeyOf(uint64_t run_seed, size_t place, size_t prompts);

// `images` pictures of these prompts, which are taken in turn, as leases without the weights.
struct HeldOutPictures {
  std::vector<v1::Lease::Pictures> leases;
  // Workers are given the conditioning as long as somebody holds it.
  std::vector<std::shared_ptr<const std::string>> conditioning;

  // `together`: pictures of a lease, which a worker draws as one batch.
  static absl::StatusOr<HeldOutPictures> Of(const std::vector<v1::Prompt>& prompts, size_t images,
                                            size_t together, ConditioningCache& conditioning);
};

}  // namespace oxbow::learner
