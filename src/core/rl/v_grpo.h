// SPDX-License-Identifier: Apache-2.0
// V-GRPO (arXiv:2604.23380): the whole image o is one action, and a variational bound stands for
// its log-prob.
//
//   l(t, eps) = mean (x_t - t v - o)^2 / stop_gradient(mean |x_t - t v - o|)
//   rho       = exp(L_old - L_theta),  L the mean of l over the image's pairs (t, eps)
//
// Its ablations measure the error elsewhere. All errors are multiples of e = v - (eps - o):
//
//   clean  x_t - t v - o = -t e       noise  x_t + (1 - t) v - eps = (1 - t) e       velocity  e
//
// and weigh it otherwise: uniform: 1, or bound: what makes E l the variational bound of the image's
// log-likelihood (arXiv:2303.00848), (1 - t) / t times mean e^2, whatever the error.
//
// Pairs are shared by a prompt's images and stratified over the schedule, so that what is common
// to them cancels in the ratio. The loss is PPO's clip of rho.
#pragma once

#include "core/rl/forward_process.h"

namespace oxbow::rl {

enum class VGrpoPrediction { kClean, kNoise, kVelocity };
enum class VGrpoWeight { kAdaptive, kUniform, kBound };

struct VGrpoLoss {
  VGrpoPrediction prediction = VGrpoPrediction::kClean;
  VGrpoWeight weight = VGrpoWeight::kAdaptive;
};

// l [R] in float64 of images `x0` that are noised to x_t = (1 - t) x0 + t noise. The paper prints a
// sum over elements in the numerator: D times the value, and a clip range as much larger.
at::Tensor VGrpoSurrogate(const VGrpoLoss& loss, const RowBatch& batch, const at::Tensor& v);

// mean (xhat_theta - xhat_old)^2 [R] = t^2 mean (v - v_old)^2. No gradient through `v_old`.
at::Tensor VGrpoPull(const at::Tensor& t, const at::Tensor& v, const at::Tensor& v_old);

class VGrpo final : public ForwardProcess {
 public:
  VGrpo(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks);

  bool has_ratio() const override { return true; }
  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;

 private:
  const VGrpoLoss loss_;
};

}  // namespace oxbow::rl
