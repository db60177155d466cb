// SPDX-License-Identifier: Apache-2.0
#include "core/rl/awm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/check.h"

namespace oxbow::rl {
namespace {

constexpr double kAwmEpsilon = 1e-10;
constexpr double kPower = 0.25;  // p

}  // namespace

at::Tensor AwmLogProb(const AwmOptions& options, const at::Tensor& x0, const at::Tensor& noise,
                      const at::Tensor& t, const at::Tensor& v) {
  const at::Tensor target = noise.to(at::kDouble) - x0.to(at::kDouble);
  const at::Tensor l = ElementMean((v.to(at::kDouble) - target).square());
  const at::Tensor time = t.to(l.device(), at::kDouble);
  switch (options.weighting) {
    case AwmWeighting::kUniform:
      return -l;
    case AwmWeighting::kLinear:
      return -(time * l);
    case AwmWeighting::kSquare:
      return -(time * time * l);
    case AwmWeighting::kHuber:
      return -(time * ((l + kAwmEpsilon).sqrt() - std::sqrt(kAwmEpsilon)));
    case AwmWeighting::kGeneralHuber:
      return -(time / kPower * ((l + kAwmEpsilon).pow(kPower) - std::pow(kAwmEpsilon, kPower)));
  }
  OXBOW_CHECK(false) << "awm weighting " << static_cast<int>(options.weighting);
}

Awm::Awm(const TrainerOptions& options, const model::Policy& policy, parallel::Ranks& ranks)
    : ForwardProcess(options, policy, ranks),
      awm_{.weighting = options.settings.Get("weighting", AwmOptions().weighting),
           .ratio = options.settings.Get("ratio", AwmOptions().ratio)} {}

RowTerms Awm::Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                    const at::Tensor& v) const {
  const auto score = [&](const at::Tensor& velocity) {
    return AwmLogProb(awm_, batch.clean, batch.noise, batch.sigma, velocity);
  };
  const double scale = 1 / options_.advantage.clip;
  const bool samples_with_old = SamplesWithOld();
  at::Tensor old;
  if (options_.old_kl_weight > 0 || (awm_.ratio && samples_with_old)) old = OldCopyVelocity(batch);
  RowTerms terms;
  if (awm_.ratio) {
    const at::Tensor sampled_by = samples_with_old ? old : VelocityBeforeStep(refs, v);
    terms = Clipped(refs, score(v), score(sampled_by), /*mean_first=*/false, scale);
  } else {
    terms.loss = -(AdvantageColumn(refs).to(at::kDouble) * scale * score(v));
  }
  if (options_.old_kl_weight > 0) terms.old_kl = ElementMean((v - old).square());
  return terms;
}

}  // namespace oxbow::rl
