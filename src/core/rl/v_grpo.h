// SPDX-License-Identifier: Apache-2.0
// V-GRPO (arXiv:2604.23380): the whole image o is one action, and a variational bound stands for
// its log-prob.
//
//   l(t, eps) = mean (x_t - t v - o)^2 / stop_gradient(mean |x_t - t v - o|)
//   rho       = exp(L_old - L_theta),  L the mean of l over the image's pairs (t, eps)
//
// Pairs are shared by a prompt's images and stratified over the schedule, so that what is common
// to them cancels in the ratio. The loss is PPO's clip of rho.
#pragma once

#include "core/rl/forward_process.h"

namespace oxbow::rl {

// l [R] in float64. With `sum_norms` the square is a sum over elements instead of their mean, as
// printed: D times the value, and a clip range that has to be as much larger.
at::Tensor VGrpoSurrogate(const at::Tensor& x_t, const at::Tensor& x0, const at::Tensor& t,
                          const at::Tensor& v, bool sum_norms);

// mean (xhat_theta - xhat_old)^2 [R] = t^2 mean (v - v_old)^2. No gradient through `v_old`.
at::Tensor VGrpoPull(const at::Tensor& t, const at::Tensor& v, const at::Tensor& v_old);

class VGrpo final : public ForwardProcess {
 public:
  VGrpo(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks);

  bool has_ratio() const override { return true; }
  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;

 private:
  const bool sum_norms_;  // As printed, instead of mean over mean.
};

}  // namespace oxbow::rl
