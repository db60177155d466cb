// SPDX-License-Identifier: Apache-2.0
#include "core/rl/guard.h"

#include <ATen/ATen.h>

#include "core/rl/method.h"

namespace oxbow::rl {
at::Tensor MeanShift(const at::Tensor& mean_new, const at::Tensor& mean_old,
                     const at::Tensor& scale) {
  const at::Tensor squares = (mean_new - mean_old.detach()).square().flatten(1).mean(1);
  return squares / (2 * scale * scale);
}

at::Tensor GuardLogRatio(const at::Tensor& lp_new, const at::Tensor& lp_old, const at::Tensor& bias,
                         const at::Tensor& scale) {
  return (lp_new - lp_old.detach() + bias) * scale;
}

at::Tensor DivergenceMaskedLoss(const at::Tensor& lp_new, const at::Tensor& lp_old,
                                const at::Tensor& divergence, const at::Tensor& advantage,
                                const at::Tensor& weight, double divergence_max) {
  const at::Tensor ratio = (lp_new - lp_old.detach()).exp();
  const at::Tensor outward = advantage * (ratio.detach() - 1) > 0;
  const at::Tensor dropped = outward.logical_and(divergence.detach() >= divergence_max);
  return (-advantage.detach() * weight.detach() * ratio).masked_fill(dropped, 0);
}

MeanComparison::Comparison MeanComparison::Compare(const RowBatch& batch,
                                                   const std::vector<RowRef>& refs,
                                                   const at::Tensor& v) const {
  const auto kernels = flow::GatherKernels(options_.sampling, batch.steps);
  const at::Tensor mean = flow::RowMean(*kernels, batch.x, v);
  const at::Tensor mean_old = flow::RowMean(*kernels, batch.x, VelocityBeforeStep(refs, v));
  const at::Tensor scale = KernelColumn(batch, [](const flow::StepKernel& k) { return k.scale; });
  return {.log_prob = flow::RowLogProb(*kernels, mean, batch.x_next),
          .old = OldLogProbs(batch, refs, v),
          .scale = scale,
          .shift = MeanShift(mean, mean_old, scale)};
}

RowTerms Guard::Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                      const at::Tensor& v) const {
  const Comparison rows = Compare(batch, refs, v);
  const at::Tensor log_ratio = GuardLogRatio(rows.log_prob, rows.old, rows.shift, rows.scale);
  const at::Tensor loss = ClippedLoss(log_ratio, at::zeros_like(rows.old), AdvantageColumn(refs),
                                      Weights(refs), options_.clip());
  const at::Tensor time_step =
      KernelColumn(batch, [](const flow::StepKernel& k) { return k.sigma - k.sigma_next; });
  return {
      .loss = loss / time_step, .log_ratio = log_ratio.detach(), .old_kl = {}, .centre = rows.old};
}

RowTerms Dppo::Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                     const at::Tensor& v) const {
  const Comparison rows = Compare(batch, refs, v);
  return {.loss = DivergenceMaskedLoss(rows.log_prob, rows.old, rows.shift, AdvantageColumn(refs),
                                       Weights(refs), options_.clip_range),
          .log_ratio = rows.log_prob.detach() - rows.old,
          .old_kl = {},
          .centre = rows.old};
}

}  // namespace oxbow::rl
