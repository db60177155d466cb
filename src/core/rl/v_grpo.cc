// SPDX-License-Identifier: Apache-2.0
#include "core/rl/v_grpo.h"

#include <ATen/ATen.h>

namespace oxbow::rl {
namespace {

constexpr double kErrorMin = 1e-8;
constexpr double kBoundTimeMin = 0.01;  // The bound's weight grows beyond all limits towards t = 0.

at::Tensor ErrorOf(VGrpoPrediction prediction, const RowBatch& batch, const at::Tensor& v) {
  const at::Tensor velocity = v.to(at::kDouble);
  switch (prediction) {
    case VGrpoPrediction::kClean:
      return CleanPrediction(batch.x, batch.sigma, v) - batch.clean.to(at::kDouble);
    case VGrpoPrediction::kNoise:
      return batch.x.to(at::kDouble) +
             OverRows(1 - batch.sigma.to(at::kDouble), batch.x) * velocity -
             batch.noise.to(at::kDouble);
    case VGrpoPrediction::kVelocity:
      break;
  }
  return velocity - (batch.noise.to(at::kDouble) - batch.clean.to(at::kDouble));
}

}  // namespace

at::Tensor VGrpoSurrogate(const VGrpoLoss& loss, const RowBatch& batch, const at::Tensor& v) {
  const bool bound = loss.weight == VGrpoWeight::kBound;
  const at::Tensor error = ErrorOf(bound ? VGrpoPrediction::kVelocity : loss.prediction, batch, v);
  at::Tensor squares = ElementMean(error.square());
  if (loss.weight == VGrpoWeight::kAdaptive) {
    squares = squares / ElementMean(error.detach().abs()).clamp_min(kErrorMin);
  } else if (bound) {
    const at::Tensor t = batch.sigma.to(squares.device(), at::kDouble).clamp_min(kBoundTimeMin);
    squares = squares * ((1 - t) / t);
  }
  return squares;
}

at::Tensor VGrpoPull(const at::Tensor& t, const at::Tensor& v, const at::Tensor& v_old) {
  const at::Tensor difference = v.to(at::kDouble) - v_old.detach().to(at::kDouble);
  const at::Tensor time = t.to(v.device(), at::kDouble);
  return time * time * ElementMean(difference.square());
}

VGrpo::VGrpo(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks)
    : ForwardProcess(options, policy, ranks),
      loss_{.prediction = options.settings.Get("prediction", VGrpoPrediction::kClean),
            .weight = options.settings.Get("weight", VGrpoWeight::kAdaptive)} {}

RowTerms VGrpo::Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                      const at::Tensor& v) const {
  const at::Tensor v_old = VelocityBeforeStep(refs, v);
  const at::Tensor surrogate = VGrpoSurrogate(loss_, batch, v);
  RowTerms terms =
      Clipped(refs, -surrogate, -VGrpoSurrogate(loss_, batch, v_old), /*mean_first=*/true, 1);
  terms.surrogate = surrogate.detach();
  if (options_.old_kl_weight > 0) terms.old_kl = VGrpoPull(batch.sigma, v, v_old);
  return terms;
}

}  // namespace oxbow::rl
