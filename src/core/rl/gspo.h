// SPDX-License-Identifier: Apache-2.0
// GSPO (arXiv:2507.18071, Eqs. 5 and 7): GRPO with one ratio, and one clip, for a whole sample.
//
//   s = exp( mean_i (lp_theta,i - lp_old,i) )      loss = max(-A s, -A clamp(s, 1 - low, 1 + high))
//
// The paper's sequence is a text, its mean one over tokens. Here it is a path of denoising: i are
// the trained steps of a sample, and a log-prob is a mean over the latent's elements already. All
// steps of a sample are clipped, or none.
#pragma once

#include "core/rl/grpo.h"

namespace oxbow::rl {

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
