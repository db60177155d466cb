// SPDX-License-Identifier: Apache-2.0
// The network as reinforcement learning sees it: v(x, sigma, conditioning). It knows nothing of RL.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/model/conditioning.h"

namespace oxbow::model {

class OffloadedWeights;

// How a network computes.
struct Execution {
  // The type of products and attention; norms, the sum of residuals and the result are float32.
  // Weights of this type are used as they are, others are cast.
  at::ScalarType compute = at::kFloat;
  // In the backward pass, instead of keeping; see recompute.h.
  bool checkpoint_activations = false;
  bool inputs_on_host = false;   // With that: for counts of memory; MakeInputsOnHost does it.
  double embedded_guidance = 0;  // For networks that take the scale of guidance as an input.
  // Where the leaves that a network is bound to get their values from, block by block; then blocks
  // are recomputed. Null: all are where they compute.
  OffloadedWeights* offloaded = nullptr;
};

// Rows that went through a network: what a run costs, whatever machine it runs on.
struct RowCount {
  int64_t forward = 0;   // Without gradient.
  int64_t backward = 0;  // With gradient: forward and backward.

  RowCount& operator+=(const RowCount& other) {
    forward += other.forward;
    backward += other.backward;
    return *this;
  }
};

class VelocityModel {
 public:
  virtual ~VelocityModel() = default;

  // Predicts v = noise - data. x [B, C, H, W], or [B, C, F, H, W] for videos, float32; sigma [B]
  // float32 in [0, 1] (models that want timesteps multiply by 1000 themselves). Returns float32 of
  // x's shape, on x's device.
  //
  // Inputs may be on the CPU or, each, where the weights are: what stays the same over many calls
  // is best sent there once.
  //
  // On a CPU a row's result does not depend, bit for bit, on the other rows or on their number:
  // batches below an implementation's minimum are padded. Ratios are exactly 1 on-policy because of
  // this. A GPU's libraries promise nothing of the kind.
  at::Tensor Velocity(const at::Tensor& x, const at::Tensor& sigma,
                      const Conditioning& conditioning) const;

  // The rows of all calls of Velocity so far. Thread-safe.
  RowCount rows() const { return {forward_, backward_}; }

 protected:
  // Rows of the network that one row of a call costs.
  virtual int64_t passes() const { return 1; }

 private:
  virtual at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                             const Conditioning& conditioning) const = 0;

  mutable std::atomic<int64_t> forward_ = 0;
  mutable std::atomic<int64_t> backward_ = 0;
};

// Classifier-free guidance (arXiv:2207.12598) as a velocity model of its own:
//
//   v = v_negative + scale (v_prompt - v_negative)
//
// Both come from one batch of 2 B rows, and gradients flow through both, so that the policy that is
// trained is the one that draws.
//
// `negative`: rows of one, with as many tokens as the prompts it will be used with, on the device
// of the weights.
//
// With `apart` the two halves go through the network one after the other, in a backward pass with
// one more forward pass each: half of the activations are kept at a time. `apart` are the tensors
// that train; they get the sum of two products instead of one of 2 B rows, which rounds otherwise.
//
// With a `norm_patch` p above 0 every token, all channels of p x p latents, is then scaled to the
// norm that it has in v_prompt, as diffusers' QwenImagePipeline does.
std::unique_ptr<VelocityModel> MakeGuided(std::unique_ptr<VelocityModel> model, double scale,
                                          Conditioning negative, int64_t norm_patch = 0,
                                          std::optional<std::vector<at::Tensor>> apart = {});

// A velocity model that shows `model` trunc(1000 sigma) / 1000 instead of sigma: the whole
// timesteps of diffusers' UniPC schedulers. A level less than 5e-5 steps below a whole number
// counts as that number, so that rounding sigma to float32 does not move it by one.
std::unique_ptr<VelocityModel> MakeWholeTimesteps(std::unique_ptr<VelocityModel> model);

// A velocity model that gives `model` at most `rows_max` rows at a time (0: any number) where no
// gradient is wanted. Its results are the same, on CPUs bit for bit. A batch that a gradient goes
// through stays whole. Where the device's memory is too small for a batch, it goes on with half as
// many rows, and stays with them; one row that does not fit is torch's error.
std::unique_ptr<VelocityModel> MakeBounded(std::unique_ptr<VelocityModel> model, int64_t rows_max);

// A velocity model whose recomputed blocks keep their inputs in host memory, for networks on
// `device`; see host_inputs.h.
std::unique_ptr<VelocityModel> MakeInputsOnHost(std::unique_ptr<VelocityModel> model,
                                                at::Device device);

// A velocity model that brings the weights of no block before it asks `model`. `weights` outlives
// it.
std::unique_ptr<VelocityModel> MakeOffloaded(std::unique_ptr<VelocityModel> model,
                                             OffloadedWeights& weights);

}  // namespace oxbow::model
