// SPDX-License-Identifier: Apache-2.0
// GRPO-Guard (arXiv:2510.22319): ratios whose mean and spread are the same at every step.
//
//   b = mean (mu_theta - mu_old)^2 / (2 S^2)        r = exp((lp_theta - lp_old + b) S)
//
// On a policy's own samples lp_theta - lp_old has mean -b: adding b centres it, and multiplying by
// S makes its spread equal over steps. The loss is PPO's clip of r, divided by the time step, which
// balances the steps' gradients.
//
// Flow-DPPO (arXiv:2606.11025) takes the same b as a divergence and drops a row once it has moved
// that far in the direction its advantage asks for, instead of clipping the ratio.
#pragma once

#include "core/rl/policy_gradient.h"
#include "core/rl/row_batch.h"

namespace oxbow::rl {

// b [R] in the precision of the means [R, ...]; `scale` is S [R], above 0. Gradients flow through
// `mean_new` alone.
at::Tensor MeanShift(const at::Tensor& mean_new, const at::Tensor& mean_old,
                     const at::Tensor& scale);

// log r [R].
at::Tensor GuardLogRatio(const at::Tensor& lp_new, const at::Tensor& lp_old, const at::Tensor& bias,
                         const at::Tensor& scale);

// -weight A r, or 0 where D >= `divergence_max` and A (r - 1) > 0; r = exp(lp_new - lp_old). [R].
// No gradient through `divergence`.
at::Tensor DivergenceMaskedLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                                const at::Tensor& divergence, const at::Tensor& advantage,
                                const at::Tensor& weight, double divergence_max);

// The comparison of both methods: means of Gaussian steps with those of the policy before the step.
class MeanComparison : public PolicyGradient {
 public:
  using PolicyGradient::PolicyGradient;

 protected:
  bool NeedsOldVelocities() const override { return true; }

  // The numbers of rows whose current velocity is `v`; [R] each.
  struct Comparison {
    at::Tensor log_prob;  // Under the current policy; with gradient.
    at::Tensor old;       // Under the policy before the step.
    at::Tensor scale;     // S
    at::Tensor shift;     // b
  };
  Comparison Compare(const RowBatch& batch, const std::vector<RowRef>& refs,
                     const at::Tensor& v) const;
};

class Guard final : public MeanComparison {
 public:
  using MeanComparison::MeanComparison;

  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;
};

class Dppo final : public MeanComparison {
 public:
  using MeanComparison::MeanComparison;

  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;
};

}  // namespace oxbow::rl
