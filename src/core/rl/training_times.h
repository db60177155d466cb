// SPDX-License-Identifier: Apache-2.0
// At which noise levels a forward-process method looks at a finished image: x_t = (1 - t) x_0 + t
// eps with times of its own, not those the image was drawn with.
//
//   grid                  `count` of the sampler's levels, each at most once (DiffusionNFT)
//   discrete              the first `fraction` of the levels cut into `count` bins, one level each
//                         (AWM; V-GRPO with fraction 1)
//   discrete_without_init as discrete, never the pure noise of level 0
//   discrete_with_init    level 0 first, and as discrete_without_init the others (Flow-Factory)
//   uniform               `count` strata of [low, high], shifted
//   logit_normal          sigmoid of normal quantiles of `count` strata, shifted, at least .01
//
// Everything is counter-based noise keyed by (run seed, group, sample), so that neither the number
// of ranks nor the batching of rows changes a bit.
#pragma once

#include <cstdint>
#include <vector>

namespace at {
class Tensor;
}

namespace oxbow::rl {

enum class TimeSampler { kGrid, kDiscrete, kWithoutInit, kUniform, kLogitNormal, kWithInit };

// Samples that share a draw: none, those of a group, or all of a learner step.
enum class Sharing { kSample, kGroup, kStep };

struct TimeOptions {
  TimeSampler sampler = TimeSampler::kGrid;
  int count = 0;           // Pairs of time and noise per sample; 0: int(fraction T).
  double fraction = 0.99;  // Share of the sampler's levels, from the noisy end.
  double low = 0.2;        // uniform, before the shift.
  double high = 1;
  double shift = 3;  // Shifts uniform and logit_normal.
  Sharing times = Sharing::kSample;
  Sharing noise = Sharing::kSample;
};

// The name of one sample's draws.
struct PairKey {
  uint64_t run_seed = 0;
  uint64_t step = 0;  // Learner step.
  uint64_t group = 0;
  uint32_t trajectory = 0;
};

// Pairs per sample, for a sampler of `levels` steps.
int PairCount(const TimeOptions& options, int levels);

// PairCount times in (0, 1]. `sigmas` are the sampler's T + 1 levels. Pure.
std::vector<double> DrawTimes(const TimeOptions& options, const std::vector<double>& sigmas,
                              const PairKey& key);

// The noise of pair `pair`: standard normal float32 [C, H, W]. Pure.
at::Tensor DrawPairNoise(const TimeOptions& options, const PairKey& key, int pair,
                         const std::vector<int64_t>& shape);

}  // namespace oxbow::rl
