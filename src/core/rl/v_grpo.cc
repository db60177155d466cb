// SPDX-License-Identifier: Apache-2.0
#include "core/rl/v_grpo.h"

#include <ATen/ATen.h>

namespace oxbow::rl {
namespace {

constexpr double kWeightMin = 1e-8;

}  // namespace

at::Tensor VGrpoSurrogate(const at::Tensor& x_t, const at::Tensor& x0, const at::Tensor& t,
                          const at::Tensor& v, bool sum_norms) {
  const at::Tensor error = CleanPrediction(x_t, t, v) - x0.to(at::kDouble);
  const at::Tensor weight = ElementMean(error.detach().abs()).clamp_min(kWeightMin);
  const at::Tensor squares = ElementMean(error.square()) / weight;
  return sum_norms ? squares * static_cast<double>(error[0].numel()) : squares;
}

at::Tensor VGrpoPull(const at::Tensor& t, const at::Tensor& v, const at::Tensor& v_old) {
  const at::Tensor difference = v.to(at::kDouble) - v_old.detach().to(at::kDouble);
  const at::Tensor time = t.to(v.device(), at::kDouble);
  return time * time * ElementMean(difference.square());
}

VGrpo::VGrpo(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks)
    : ForwardProcess(options, policy, ranks),
      sum_norms_(options.settings.Get("sum_norms", false)) {}

RowTerms VGrpo::Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                      const at::Tensor& v) const {
  const auto score = [&](const at::Tensor& velocity) {
    return -VGrpoSurrogate(batch.x, batch.clean, batch.sigma, velocity, sum_norms_);
  };
  const at::Tensor v_old = VelocityBeforeStep(refs, v);
  RowTerms terms = Clipped(refs, score(v), score(v_old), /*mean_first=*/true, 1);
  if (options_.old_kl_weight > 0) terms.old_kl = VGrpoPull(batch.sigma, v, v_old);
  return terms;
}

}  // namespace oxbow::rl
