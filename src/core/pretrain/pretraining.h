// Pretrains the model of an embedded world from nothing: transformer and text encoder together.
//
//   x = (1 - t) x0 + t eps        loss = mean |v(x, t, prompt) - (eps - x0)|^2
//
// AdamW with warm-up and a linear decay over the end, gradients of both networks clipped together,
// and a running average of the weights, which is what ships. All draws come from counter-based
// streams: with one torch thread, equal options give equal bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/parameters.h"
#include "core/pretrain/world_tensors.h"

namespace oxbow::task {

struct PretrainingOptions {
  BatchOptions batch;  // Its seed is the run's.
  int64_t steps = 6000;
  double learning_rate = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 1e-4;
  int warmup_steps = 100;
  double decay_share = 0.6;  // Of the steps, at the end.
  double decay_to = 0.02;    // Of the learning rate.
  double grad_norm_max = 1;
  double ema_decay = 0.995;
  double embedding_std = 0.3;  // Of the text encoder's embeddings at the start.
};

// Factor of the learning rate at `step` = 0 .. steps - 1, warm-up aside: 1, then linear to
// `decay_to`.
double DecayFactor(const PretrainingOptions& options, int64_t step);

class Pretraining {
 public:
  // `world` outlives the run.
  static absl::StatusOr<std::unique_ptr<Pretraining>> Create(PretrainingOptions options,
                                                             const WorldTensors& world);
  ~Pretraining();

  // Takes one step and returns its loss. kInternal if loss or gradients are not finite.
  absl::StatusOr<double> Step();
  int64_t steps_done() const;

  // Averaged weights under their published names; copies.
  model::NamedTensors TransformerWeights() const;
  model::NamedTensors TextWeights() const;

 private:
  struct Impl;
  explicit Pretraining(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Draws `per_prompt` pictures of every prompt over the noise levels `sigmas` by the ODE and counts
// them.
absl::StatusOr<std::vector<Measure>> EvaluatePretrained(
    const WorldTensors& world, const model::NamedTensors& transformer,
    const model::NamedTensors& text, const std::vector<std::string>& prompts, int per_prompt,
    const std::vector<double>& sigmas, uint64_t seed);

}  // namespace oxbow::task
