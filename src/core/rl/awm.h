// SPDX-License-Identifier: Apache-2.0
// Advantage Weighted Matching (arXiv:2509.25050): the flow-matching loss of a sampled image is
// minus its log-prob, weighted with the advantage through a ratio.
//
//   l = mean (v - (eps - x_0))^2        lp = -w(l, t)        r = exp(lp_theta - lp_old)
//
//   uniform   l                                linear_t  t l                t2  t^2 l
//   huber     t (sqrt(l + 1e-10) - 1e-5)       ghuber    t / p ((l + 1e-10)^p - (1e-10)^p), p = .25
//
// The loss is PPO's clip of r with A / c; both policies see the same times and noises. The old one
// is the policy before the step, or the running old policy where that samples (policy_copies.h).
#pragma once

#include "core/rl/forward_process.h"

namespace oxbow::rl {

enum class AwmWeighting { kUniform, kLinear, kSquare, kHuber, kGeneralHuber };

struct AwmOptions {
  AwmWeighting weighting = AwmWeighting::kGeneralHuber;
  bool ratio = true;  // False: the loss is -A lp / c, and no old policy is asked.
};

// lp [R] in float64. x_0, `noise` and `v` are [R, ...], `t` is [R].
at::Tensor AwmLogProb(const AwmOptions& options, const at::Tensor& x0, const at::Tensor& noise,
                      const at::Tensor& t, const at::Tensor& v);

class Awm final : public ForwardProcess {
 public:
  Awm(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks);

  bool has_ratio() const override { return awm_.ratio; }
  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;

 private:
  const AwmOptions awm_;
};

}  // namespace oxbow::rl
