// SPDX-License-Identifier: Apache-2.0
// Pretrains the model of a synthetic task from random weights: transformer and text encoders
// together.
//
//   x = (1 - t) x0 + t eps        loss = mean |v(x, t, prompt) - (eps - x0)|^2
//
// AdamW with warm-up and a linear decay at the end; the gradients of all networks are clipped
// together. The shipped weights are a running average. All draws come from counter-based streams:
// with one torch thread, equal options give equal bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/parameters.h"
#include "tasks/pretraining/networks.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {

struct PretrainingOptions {
  BatchOptions batch;  // Its seed is the seed of the run.
  int64_t steps = 6000;
  double learning_rate = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;
  int warmup_steps = 100;
  double decay_share = 0.6;  // Last share of the steps.
  double decay_to = 0.02;    // Final share of the learning rate.
  double grad_norm_max = 1;
  double ema_decay = 0.995;
  double embedding_std = 0.3;  // Initial std of the text encoders' embeddings.
};

// Factor of the learning rate at `step` = 0 .. steps - 1, without the warm-up: 1, then linear to
// `decay_to`.
double DecayFactor(const PretrainingOptions& options, int64_t step);

class Pretraining {
 public:
  // `task` and `networks` outlive the run. Errors of InitialWeights.
  static absl::StatusOr<std::unique_ptr<Pretraining>> Create(PretrainingOptions options,
                                                             const TaskTensors& task,
                                                             const Networks& networks);
  ~Pretraining();

  // Takes one step and returns its loss. kInternal if loss or gradients are not finite.
  absl::StatusOr<double> Step();
  int64_t steps_done() const;

  // Copies of the averaged weights, under their published names.
  ComponentWeights Weights() const;

 private:
  struct Impl;
  explicit Pretraining(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Samples `per_prompt` images of every prompt over the noise levels `sigmas` with the ODE, and
// measures them.
absl::StatusOr<std::vector<Measure>> EvaluatePretrained(
    const TaskTensors& task, const Networks& networks, const ComponentWeights& weights,
    const std::vector<std::string>& prompts, int per_prompt, const std::vector<double>& sigmas,
    uint64_t seed);

}  // namespace oxbow::tasks
