// SPDX-License-Identifier: Apache-2.0
// DiffusionNFT (arXiv:2509.16117): two implicit policies around the old one, v+ towards the current
// velocity and v- away from it, each fitted to the image x_0 with the weight its reward earns.
//
//   v+ = b v + (1 - b) v_old          v- = (1 + b) v_old - b v          xhat± = x_t - t v±
//   L± = mean (xhat± - x_0)^2 / stop_gradient(max(mean |xhat± - x_0|, 1e-5))
//   p  = clamp(A / (2 c) + 1/2, 0, 1)
//   L  = c (p L+ + (1 - p) L-) / b
//
// One value per row, in float64 as published.
#pragma once

#include "core/rl/forward_process.h"

namespace oxbow::rl {

// p of an advantage.
double NftOptimality(double advantage, double advantage_clip);

// L± [R] of an implicit policy's velocity [R, ...]. `t` is [R]; x_t, x_0 and `velocity` have rows
// of one shape.
at::Tensor NftSide(const at::Tensor& x_t, const at::Tensor& x0, const at::Tensor& t,
                   const at::Tensor& velocity);

// L [R]. `optimality` is p [R]; gradients flow through `v` alone.
at::Tensor NftLoss(const at::Tensor& x_t, const at::Tensor& x0, const at::Tensor& t,
                   const at::Tensor& v, const at::Tensor& v_old, const at::Tensor& optimality,
                   double beta, double advantage_clip);

class Nft final : public ForwardProcess {
 public:
  Nft(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks);

  bool has_ratio() const override { return false; }
  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;

 private:
  const double beta_;
};

}  // namespace oxbow::rl
