// SPDX-License-Identifier: Apache-2.0
// GRPO on a flow-matching model: PPO's clip of each transition's ratio (method.h).
//
//   Flow-GRPO, DanceGRPO, MixGRPO, OP-GRPO   clip around pi_old           loss_weight.h
//   off-policy GRPO                          clip around pi_old / pi_off
//   TempFlow-GRPO                            weights of steps             loss_weight.h
//
// Dynamics and windows make the difference between the first three; they are the sampler's.
#pragma once

#include "core/rl/policy_gradient.h"

namespace oxbow::rl {

class Grpo : public PolicyGradient {
 public:
  using PolicyGradient::PolicyGradient;

  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;

 private:
  // The log-probs that ratios are made of, from those of rows [R]: a row's own.
  virtual at::Tensor Compared(const at::Tensor& log_prob, const std::vector<RowRef>& refs) const;
};

// GSPO (arXiv:2507.18071, Eqs. 5 and 7): GRPO with one ratio, and one clip, for a whole sample.
//
//   s = exp( mean_i (lp_theta,i - lp_old,i) )      loss = max(-A s, -A clamp(s, 1 - low, 1 + high))
//
// The paper's sequence is a text, its mean one over tokens. Here it is a path of denoising: i are
// the trained steps of a sample, and a log-prob is a mean over the latent's elements already. All
// steps of a sample are clipped, or none.

// [R] -> [R]: every row gets the mean of its sample. Rows of a sample are neighbours.
at::Tensor PathMeans(const at::Tensor& rows, const std::vector<RowRef>& refs);

class Gspo final : public Grpo {
 public:
  using Grpo::Grpo;

 private:
  at::Tensor Compared(const at::Tensor& log_prob, const std::vector<RowRef>& refs) const override {
    return PathMeans(log_prob, refs);
  }
};

}  // namespace oxbow::rl
