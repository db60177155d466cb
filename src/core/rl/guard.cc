#include "core/rl/guard.h"

#include <ATen/ATen.h>

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

}  // namespace oxbow::rl
