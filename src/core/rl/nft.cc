// SPDX-License-Identifier: Apache-2.0
#include "core/rl/nft.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace oxbow::rl {
namespace {

constexpr double kWeightMin = 1e-5;

}  // namespace

double NftOptimality(double advantage, double advantage_clip) {
  const double limited = std::clamp(advantage, -advantage_clip, advantage_clip);
  return std::clamp(limited / advantage_clip / 2 + 0.5, 0., 1.);
}

at::Tensor NftSide(const at::Tensor& x_t, const at::Tensor& x0, const at::Tensor& t,
                   const at::Tensor& velocity) {
  const at::Tensor error = CleanPrediction(x_t, t, velocity) - x0.to(at::kDouble);
  const at::Tensor weight = ElementMean(error.detach().abs()).clamp_min(kWeightMin);
  return ElementMean(error.square()) / weight;
}

at::Tensor NftLoss(const at::Tensor& x_t, const at::Tensor& x0, const at::Tensor& t,
                   const at::Tensor& v, const at::Tensor& v_old, const at::Tensor& optimality,
                   double beta, double advantage_clip) {
  const at::Tensor current = v.to(at::kDouble);
  const at::Tensor old = v_old.detach().to(at::kDouble);
  const at::Tensor plus = NftSide(x_t, x0, t, current * beta + old * (1 - beta));
  const at::Tensor minus = NftSide(x_t, x0, t, old * (1 + beta) - current * beta);
  const at::Tensor p = optimality.detach().to(at::kDouble);
  return (p * plus + (1 - p) * minus) * (advantage_clip / beta);
}

Nft::Nft(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks)
    : ForwardProcess(options, policy, ranks), beta_(options.settings.Get("beta", 1.)) {}

RowTerms Nft::Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                    const at::Tensor& v) const {
  const double clip = options_.advantage.clip;
  std::vector<double> optimality;
  for (const RowRef& ref : refs) {
    optimality.push_back(NftOptimality(ref.trajectory->advantage, clip));
  }
  return {.loss = NftLoss(batch.x, batch.clean, batch.sigma, v, OldCopyVelocity(batch),
                          at::tensor(optimality, at::kDouble), beta_, clip),
          .log_ratio = {},
          .old_kl = {}};
}

}  // namespace oxbow::rl
