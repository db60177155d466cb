// SPDX-License-Identifier: Apache-2.0
// Draws trajectories: x_0 from noise, then T kernel steps under a velocity model.
//
// Noise is counter-based, keyed by (run seed, group, sample, step): it does not depend on the
// worker, batch or attempt that draws it. x_{i+1} is rounded to the storage dtype first and scored
// afterwards, so that a log-prob recomputed from stored latents is the same number.
//
// Deterministic steps use the spec's solver. A second-order solver uses one earlier step, but never
// one before a stochastic step or before the start of a tail: there it starts again with order 1.
// Behind the last stochastic step a spec with compression takes fewer steps, with a solver of their
// own (compression.h). Its paths are as much shorter: the last latent is the picture.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/flow/dynamics.h"

namespace oxbow::flow {

// Identity of one sample's noise.
struct NoiseKey {
  uint64_t run_seed = 0;
  uint64_t group = 0;
  uint32_t sample = 0;
};

// Standard normal float32 [C, H, W] for a step (or a StreamPurpose such as kInitialLatent). Pure.
at::Tensor DrawNoise(const NoiseKey& key, uint32_t step, at::IntArrayRef shape);

// v(x [B, C, H, W], sigma [B]) -> [B, C, H, W]; conditioning and guidance are bound by the caller.
using VelocityFunction = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& sigma)>;

// The same for x [N, C, H, W] of some rows of the batch: `rows` [N] says which.
using NodeVelocityFunction = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& sigma,
                                                      const std::vector<int64_t>& rows)>;

// B paths, or the tails of B paths, of one batch.
struct Paths {
  // [steps taken + 1, B, C, H, W] float32: values already rounded to the storage dtype.
  at::Tensor latents;
  at::Tensor log_prob;  // [steps, B] float32; 0 where the step has no density.
  int first_step = 0;   // latents[0] is x_{first_step}.
};

// A spec with splits makes trees of a group's samples: the noise of a step, and of x_0 in
// SamplePaths, is that of the first leaf of the sample's node.

// x_0 [B, C, H, W] of whole paths, before it is rounded: standard normal float32, a row per key.
at::Tensor DrawStarts(const std::vector<NoiseKey>& keys, at::IntArrayRef shape);

// Samples whole paths for `keys` (B = keys.size()). `shape` is [C, H, W].
Paths SamplePaths(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                  at::IntArrayRef shape, at::ScalarType storage, const VelocityFunction& velocity);

// Continues from x_{first_step} = `start` [B, C, H, W] to x_T under `spec`. Velocities are asked
// for on the device of `start`; the paths are in host memory (path_record.h).
Paths ContinuePaths(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                    const at::Tensor& start, int first_step, at::ScalarType storage,
                    const VelocityFunction& velocity);

// ContinuePaths, bit for bit, with each node of the spec's trees computed once: velocities are
// asked for the first row of every node. Rows whose members have a node of x_{first_step} in common
// have equal starts.
Paths ContinueTrees(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                    const at::Tensor& start, int first_step, at::ScalarType storage,
                    const NodeVelocityFunction& velocity);

// Log-probs [B] of stored transitions x -> x_next at one step, with gradients if v has them.
// The same operations as sampling: equal inputs give equal bits.
at::Tensor ScoreTransition(const SamplingSpec& spec, int step, const at::Tensor& x,
                           const at::Tensor& x_next, const at::Tensor& velocity);

// How many steps of a stored trajectory to keep: the ill-conditioned late steps are generated
// again.
//
// A change of velocity dv makes step i off-policy by kappa_i = kc_i mean(dv^2), and kc_i grows by
// three orders of magnitude along a trajectory. Steps past the first kc_i >= the limit are dropped
// from the importance weight and from the loss (OP-GRPO's t_off, counted from the noisy end).

// kc of every step; 0 for deterministic ones.
std::vector<double> SensitivityTable(const SamplingSpec& spec);

// i_off: one past the last stochastic step before any with kc >= `kc_max`; 0 if there is none.
// Latents x_0 .. x_{i_off} are worth storing, and the tail is sampled again from x_{i_off}.
int KeptSteps(const SamplingSpec& spec, double kc_max);

}  // namespace oxbow::flow
