#include "core/rl/v_grpo.h"

#include <ATen/ATen.h>

#include "core/rl/row_math.h"

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

}  // namespace oxbow::rl
