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

}  // namespace oxbow::rl
