#include "core/rl/kl.h"

#include "base/check.h"

namespace oxbow::rl {

double KlScale(KlSpace space, const flow::StepKernel& kernel) {
  if (space == KlSpace::kVelocity) return 1;
  OXBOW_CHECK(kernel.std > 0) << "mean-space KL of a deterministic step; sigma " << kernel.sigma;
  return kernel.cv * kernel.cv / (2 * kernel.std * kernel.std);
}

at::Tensor RowKl(const at::Tensor& v, const at::Tensor& v_reference, const at::Tensor& scale) {
  return (v - v_reference.detach()).square().flatten(1).mean(1) * scale;
}

}  // namespace oxbow::rl
