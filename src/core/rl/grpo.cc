// SPDX-License-Identifier: Apache-2.0
#include "core/rl/grpo.h"

#include <ATen/ATen.h>

#include "core/rl/method.h"

namespace oxbow::rl {

at::Tensor Grpo::Compared(const at::Tensor& log_prob, const std::vector<RowRef>&) const {
  return log_prob;
}

RowTerms Grpo::Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                     const at::Tensor& v) const {
  at::Tensor log_prob = ScoreRows(options_.sampling, batch, v);
  const at::Tensor centre = OldLogProbs(batch, refs, v);
  at::Tensor old = centre;
  at::Tensor behaviour =
      Column(refs, [](const RowRef& r) -> double { return r.row->log_prob_behaviour; });
  // Stored log-probs and W are those of the density.
  if (options_.sampling.dynamics == flow::DynamicsKind::kCps) {
    const at::Tensor scale = KernelColumn(batch, flow::CpsSurrogateScale);
    log_prob = log_prob * scale;
    old = old * scale;
    behaviour = behaviour * scale;
  }
  log_prob = Compared(log_prob, refs);
  old = Compared(old, refs);
  behaviour = Compared(behaviour, refs);
  const at::Tensor advantage = AdvantageColumn(refs);
  const at::Tensor weight = Weights(refs);
  RowTerms terms{.loss = {}, .log_ratio = log_prob.detach() - old, .old_kl = {}, .centre = centre};
  if (options_.correction == Correction::kBehaviourClip) {
    terms.loss = weight * OffPolicyLoss(log_prob, old, behaviour, advantage, options_.clip());
  } else {
    terms.loss = ClippedLoss(log_prob, old, advantage, weight, options_.clip());
  }
  return terms;
}

// One sample after another: the bits of its mean do not depend on the samples beside it.
at::Tensor PathMeans(const at::Tensor& rows, const std::vector<RowRef>& refs) {
  std::vector<at::Tensor> means;
  for (size_t begin = 0, end = 0; begin < refs.size(); begin = end) {
    while (end < refs.size() && refs[end].trajectory == refs[begin].trajectory) ++end;
    const auto count = static_cast<int64_t>(end - begin);
    means.push_back(rows.narrow(0, static_cast<int64_t>(begin), count).mean().expand({count}));
  }
  return at::cat(means);
}

}  // namespace oxbow::rl
