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

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/flow/dynamics.h"

namespace c10 {
struct Event;
}  // namespace c10

namespace oxbow::flow {

// The noise of a path's stochastic steps, drawn by a thread of its own while the network computes.
//
// Noise is counter-based: who draws it when changes no bit. The thread touches no torch. The caller
// draws small noise itself: a thread would cost more than it saves.
class NoiseAhead {
 public:
  // Fills row `row` of the noise of step `step`, whichever thread calls it.
  using Draw = std::function<void(uint32_t step, size_t row, std::span<float> out)>;

  // The noise of `steps`, in this order, each of `shape` [B, ...], for `device`.
  NoiseAhead(std::vector<uint32_t> steps, std::vector<int64_t> shape, at::Device device, Draw draw);
  ~NoiseAhead();
  NoiseAhead(const NoiseAhead&) = delete;
  NoiseAhead& operator=(const NoiseAhead&) = delete;

  // The noise of the next step, float32, on the device. Waits for what is not drawn yet.
  at::Tensor Take();

 private:
  struct Step {
    Step(uint32_t n, at::Tensor t, std::span<float> v)
        : number(n), noise(std::move(t)), values(v) {}
    const uint32_t number;
    const at::Tensor noise;  // In host memory.
    const std::span<float> values;
    bool drawn = false;
  };
  std::shared_ptr<Step> NextStep();
  bool Fill(Step& step);
  void Run();

  const std::vector<uint32_t> steps_;
  const std::vector<int64_t> shape_;
  const at::Device device_;
  const Draw draw_;
  size_t made_ = 0;  // How many of steps_, by the caller's thread.

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The next steps, in order. The thread draws the first that is not drawn.
  std::deque<std::shared_ptr<Step>> ahead_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// The record that a path leaves in host memory: its latents and the log-probs of its steps.
//
// Log-probs are computed on the CPU, because a GPU's sums have other bits. On a GPU a step's
// latents and velocity go to pinned memory when the GPU gets there. They are scored one step later,
// while the network computes: the sampling thread never waits for the step that it has just
// launched.
class PathRecord {
 public:
  // Begins a path of steps `first_step` to the spec's last, from x_{first_step} = `x` [B, C, H, W],
  // float32. `spec` must outlive it.
  PathRecord(const SamplingSpec& spec, int first_step, const at::Tensor& x);
  ~PathRecord();
  PathRecord(const PathRecord&) = delete;
  PathRecord& operator=(const PathRecord&) = delete;

  // Takes the next step: x_{i+1}, like x_i, and the velocity that led there.
  void Add(const at::Tensor& x_next, const at::Tensor& v);

  // Both are whole when all steps were taken and Finish() has returned.
  void Finish();
  const at::Tensor& latents() const { return latents_; }    // [steps + 1, B, C, H, W] float32
  const at::Tensor& log_prob() const { return log_prob_; }  // [steps, B] float32; 0: no density

 private:
  // A step on its way from the GPU. Two are enough: one moves while the other is scored.
  struct Place {
    at::Tensor x_next, v;  // Pinned.
    std::unique_ptr<c10::Event> arrived;
  };
  void Send(Place& place, const at::Tensor& x_next, const at::Tensor& v) const;
  void Settle(int64_t n);
  void Score(int64_t n, const at::Tensor& v);
  bool HasDensity(int64_t n) const;

  const SamplingSpec& spec_;
  const int first_step_;
  at::Tensor latents_, log_prob_;
  int64_t taken_ = 0;    // Steps that were added,
  int64_t settled_ = 0;  // and of these, those that are in the two tensors.
  std::array<Place, 2> places_;
};

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
// for on the device of `start`; the paths are in host memory.
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
